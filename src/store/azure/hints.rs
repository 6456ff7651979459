//! What a person can do about a refusal, in words.

/// Codes that say that the credential itself was not accepted, not that it lacks a permission.
pub(super) fn is_about_the_credential(code: &str) -> bool {
    matches!(
        code,
        "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "NoAuthenticationInformation"
            | "KeyBasedAuthenticationNotPermitted"
            | "RequestTimeTooSkewed"
            | "AccountIsDisabled"
    )
}

/// What `operation` needs, or what is wrong with the credential.
pub(super) fn denied(operation: &str, code: &str, account: &str, sas: bool) -> String {
    match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "RequestTimeTooSkewed" if sas => {
            "the SAS was not accepted: is it whole, of this account, not expired, \
             and not of a policy or key that was taken back?"
                .to_owned()
        }
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "RequestTimeTooSkewed" => {
            format!(
                "the signature was not accepted: is the key that of account {account:?}, and is this clock right?"
            )
        }
        "NoAuthenticationInformation" => "the account admits nobody without a credential".to_owned(),
        "KeyBasedAuthenticationNotPermitted" => {
            format!("shared keys are switched off for account {account:?}; it wants Entra ID")
        }
        "AccountIsDisabled" => format!("account {account:?} is disabled"),
        "AuthorizationProtocolMismatch" => "the SAS is for https only".to_owned(),
        "AuthorizationSourceIPMismatch" => "the SAS is not for the address of this host".to_owned(),
        "AuthorizationServiceMismatch" => "the SAS is not for the blob service (ss=b)".to_owned(),
        "AuthorizationResourceTypeMismatch" => {
            "the SAS is not for this kind of resource (srt=co for containers and blobs)".to_owned()
        }
        // Also what a firewall says, and what some servers say of a wrong key.
        "AuthorizationFailure" => format!(
            "{}; or the account's firewall does not admit this host, or the key is not that of account {account:?}",
            needs(operation)
        ),
        _ => needs(operation),
    }
}

fn needs(operation: &str) -> String {
    let (letter, of) = match operation {
        "Put Block" | "Put Block List" | "Put Blob" => ("c and w", "SAS"),
        "Get Blob" | "Get Blob Properties" => ("r", "SAS"),
        "List Blobs" => ("l", "SAS"),
        "Delete Blob" => ("d", "SAS"),
        "Create Container" => ("c", "account SAS"),
        _ => ("r", "account SAS"),
    };
    format!(
        "needs {of} letters {letter} (racwl for everything that a connector does), \
         or the role Storage Blob Data Contributor"
    )
}

/// The rule that a refused request broke, where the service does not name it.
pub(super) fn rule(code: &str) -> Option<&'static str> {
    Some(match code {
        "InvalidResourceName" => {
            "containers have 3 to 63 of a-z, 0-9 and single hyphens; blobs at most 1,024 characters"
        }
        "FeatureNotSupported" | "APINotImplemented" => {
            "if this is an emulator without CRC-64, set `checksum` of the store to \"md5\" or \"none\""
        }
        "BlobImmutableDueToPolicy" => {
            "the container has an immutability policy; state needs another container"
        }
        "InvalidBlobType" => "there is a blob of another type under this name",
        "BlobArchived" => "the blob is in the archive tier",
        "BlockCountExceedsLimit" => "a blob has at most 50,000 committed and 100,000 staged blocks",
        "InvalidBlobOrBlock" => "blocks of another length of id are staged under this name",
        "RequestBodyTooLarge" => "a block has at most 4,000 MiB",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_what_is_missing() {
        let check = |operation: &str, code: &str, sas: bool, part: &str| {
            let hint = denied(operation, code, "acc", sas);
            assert!(hint.contains(part), "{operation} {code}: {hint}");
        };
        check("Put Block", "AuthorizationPermissionMismatch", true, "letters c and w");
        check("Get Blob", "AuthorizationPermissionMismatch", false, "Storage Blob Data Contributor");
        check("Create Container", "AuthorizationFailure", true, "account SAS");
        check("Create Container", "AuthorizationFailure", true, "firewall");
        check("Put Block", "AuthenticationFailed", false, "account \"acc\"");
        check("Put Block", "AuthenticationFailed", true, "expired");
        check("Put Block", "KeyBasedAuthenticationNotPermitted", false, "switched off");
        check("List Blobs", "", true, "letters l");
    }
}

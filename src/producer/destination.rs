//! Where the blocks of a blob go: its name and the nonce of this attempt at it.
//!
//! Owns: the choice of a free name where names carry no random suffix.
//! Does not own: how names look (see [`crate::layout`]).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use tokio::sync::OnceCell;

use crate::model::{BadBlobName, BlobName, BlobRef};
use crate::store::{BlobStore, Error};

/// Gives the n-th candidate for a blob's name, for n = 0, 1, ...
pub type Candidates = Box<dyn Fn(u32) -> Result<BlobName, BadBlobName> + Send + Sync>;

/// How a blob gets its name.
pub enum Naming {
    /// By a name that nobody else can have, since part of it is random.
    Fixed(BlobName),
    /// By the first candidate that is not taken, in this process or at the store.
    NextFree(Candidates),
}

/// Names that blobs of this process have taken and not committed yet. Cloning shares it.
#[derive(Clone, Default)]
pub struct Claims {
    taken: Arc<Mutex<HashSet<BlobRef>>>,
}

impl Claims {
    // None when another blob of this process has the name.
    fn try_claim(&self, blob: BlobRef) -> Option<Claim> {
        self.lock().insert(blob.clone()).then(|| Claim { claims: self.clone(), blob })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<BlobRef>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A name that is kept from others until it is dropped, also when the look-up of it is given up in the middle.
struct Claim {
    claims: Claims,
    blob: BlobRef,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.blob);
    }
}

// A name that is chosen.
struct Chosen {
    blob: BlobRef,
    _claim: Option<Claim>,
}

/// Name and nonce of one attempt at one blob. Its name stays claimed in this process until it is dropped.
pub struct Destination {
    container: Arc<str>,
    naming: Naming,
    claims: Claims,
    nonce: u64,
    resolved: OnceCell<Chosen>,
}

impl Destination {
    /// A new attempt at a blob in `container`.
    pub fn new(container: Arc<str>, naming: Naming, claims: Claims) -> Destination {
        Destination { container, naming, claims, nonce: rand::rng().random(), resolved: OnceCell::new() }
    }

    /// The blob's container.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Distinguishes the block ids of this attempt from those of every other one.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The blob's name, chosen at the first call.
    ///
    /// # Errors
    /// The store's, while it is asked for free names; a candidate that is no blob name is [`Error::Configuration`].
    pub async fn resolve(&self, store: &dyn BlobStore) -> Result<&BlobRef, Error> {
        Ok(&self.resolved.get_or_try_init(|| self.choose(store)).await?.blob)
    }

    /// The name if it is chosen already, for messages.
    pub fn label(&self) -> String {
        match (self.resolved.get(), &self.naming) {
            (Some(chosen), _) => chosen.blob.to_string(),
            (None, Naming::Fixed(name)) => format!("{}/{name}", self.container),
            (None, Naming::NextFree(_)) => format!("a new blob in {}", self.container),
        }
    }

    async fn choose(&self, store: &dyn BlobStore) -> Result<Chosen, Error> {
        let candidates = match &self.naming {
            Naming::Fixed(name) => {
                let blob = BlobRef { container: self.container.clone(), name: name.clone() };
                return Ok(Chosen { blob, _claim: None });
            }
            Naming::NextFree(candidates) => candidates,
        };
        let mut n = 0;
        loop {
            let name = candidates(n).map_err(|e| Error::Configuration { reason: e.to_string() })?;
            let blob = BlobRef { container: self.container.clone(), name };
            n += 1;
            if let Some(claim) = self.claims.try_claim(blob.clone())
                && store.properties(&blob).await?.is_none()
            {
                return Ok(Chosen { blob, _claim: Some(claim) });
            }
        }
    }
}

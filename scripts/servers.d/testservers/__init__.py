"""The servers that blobfeed's tests run against, without containers. Used by `scripts/servers`."""

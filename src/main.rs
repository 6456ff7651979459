//! The command `blobfeed`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    blobfeed::cli::main()
}

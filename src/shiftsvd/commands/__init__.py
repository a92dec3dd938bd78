"""The subcommands, one a file; click and the standard library are all that their files import at the top."""

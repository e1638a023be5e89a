"""The kai-py command: one file per subcommand."""

"""The `hourhand` command. Each noun is a module that is imported only when it is used, so that every start is quick."""

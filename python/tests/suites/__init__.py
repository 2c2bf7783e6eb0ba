"""Other projects' tests, run on onepass: each case passes, passes adapted, or is refused by
a clear error."""

package api

// JobCursor is the cursor after a job, for tests outside the package.
func JobCursor(id int) string { return numberCursor("job", int64(id)) }

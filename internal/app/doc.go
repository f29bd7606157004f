// Package app builds the roles of the binary from their components. It is the only package that imports all roles. It creates the
// components, passes each its dependencies, starts them in order, and stops upstream components first, so that components that
// hand out work stop before those that do the work.
package app

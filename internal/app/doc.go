// Package app wires the parts into the roles of the binary. It alone knows everybody: it makes the parts, hands
// each what it consumes, starts them in order, and stops them upstream first, so that who hands out work is gone
// before who does it.
package app

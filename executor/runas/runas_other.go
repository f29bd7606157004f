//go:build !unix

package runas

import "errors"

func supported() error {
	return errors.New("this system cannot start programs under another account")
}

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/store/account"
)

// ensureAdmin creates the user admin if there are no users. If the settings contain no password, it shows the generated one once: see
// showPassword.
func (p *process) ensureAdmin(ctx context.Context, users *account.Users, password config.Secret, file string) error {
	created, generated, err := users.EnsureAdmin(ctx, password.Reveal())
	if err != nil || !created {
		return err
	}
	if generated == "" {
		fmt.Fprintln(p.app.Stdout, "user: admin (password from BELFRY_ADMIN_PASSWORD)")
		return nil
	}
	return p.showPassword(generated, file)
}

// showPassword writes the generated password of admin to a new file that only this user may read. If file is empty, it prints the password.
func (p *process) showPassword(generated, file string) error {
	if file == "" {
		fmt.Fprintf(p.app.Stdout, "user: admin\npassword: %s (shown this once)\n", generated)
		return nil
	}
	_ = os.Remove(file) // an old file may have another mode; an error shows below
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(generated + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("write the password of admin, which nothing else contains, so start again with an empty --data-dir: %w", err)
	}
	fmt.Fprintf(p.app.Stdout, "user: admin\npassword: in the file %s\n", file)
	return nil
}

// passwordFile returns the file in dataDir for the generated password of admin, or "" if a terminal or a pipe shows it. systemd sets
// SYSTEMD_EXEC_PID for each process that it starts. The output of such a process goes to the journal, which other users may read.
func passwordFile(dataDir string) (string, error) {
	if os.Getenv("SYSTEMD_EXEC_PID") != strconv.Itoa(os.Getpid()) {
		return "", nil
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil { // with external servers, nothing else creates it
		return "", fmt.Errorf("create --data-dir: %w", err)
	}
	dir, err := filepath.Abs(dataDir)
	return filepath.Join(dir, "initial-password"), err
}

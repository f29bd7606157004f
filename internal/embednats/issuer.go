package embednats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

// loadIssuer reads the key that signs executors' permissions. At the first start, it creates the key. The caller holds
// the lock of the directory.
func loadIssuer(path string) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeIssuer(path)
	}
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the NATS issuer seed", err)
	}
	key, err := nkeys.FromSeed(seed)
	if err == nil {
		var public string
		if public, err = key.PublicKey(); err == nil && !nkeys.IsValidPublicAccountKey(public) {
			err = errors.New("not the seed of an account")
		}
	}
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, "the NATS issuer seed in "+path+" is not valid; remove the file to create a new one", err)
	}
	return key, nil
}

func makeIssuer(path string) (nkeys.KeyPair, error) {
	key, err := nkeys.CreateAccount()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "create the NATS issuer key", err)
	}
	seed, err := key.Seed()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "create the NATS issuer key", err)
	}
	if err := writePrivate(path, seed); err != nil {
		return nil, domain.WrapError(domain.Internal, "store the NATS issuer seed", err)
	}
	return key, nil
}

// writePrivate creates the file atomically; only its owner can ever read it.
func writePrivate(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".issuer-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

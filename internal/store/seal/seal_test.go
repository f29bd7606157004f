package seal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/seal"
)

func TestSeal(t *testing.T) {
	none, one, other := seal.New("", "the tokens"), seal.New("first key", "the tokens"), seal.New("second key", "the tokens")
	if none.Encrypts() || !one.Encrypts() {
		t.Error("only a key encrypts")
	}
	secret := []byte("secret")
	stored := one.Close("a", secret)
	if bytes.Contains(stored, secret) || bytes.Equal(stored, one.Close("a", secret)) {
		t.Errorf("stored as %q", stored)
	}
	for _, s := range []*seal.Seal{none, one} { // a secret from before there was a key can be read
		if got, err := s.Open("a", none.Close("a", secret)); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("stored without a key: %q, %v", got, err)
		}
	}
	if got, err := one.Open("a", stored); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := one.Open("a", nil); err != nil || got != nil {
		t.Errorf("nothing stored: %q, %v", got, err)
	}
	for what, open := range map[string]func() ([]byte, error){
		"were sealed with another": func() ([]byte, error) { return other.Open("a", stored) },
		"were sealed":              func() ([]byte, error) { return one.Open("b", stored) },
		"has no --secret-key":      func() ([]byte, error) { return none.Open("a", stored) },
	} {
		if got, err := open(); got != nil || domain.CodeOf(err) != domain.Conflict || !strings.HasPrefix(err.Error(), "the tokens") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := one.Open("a", stored[:5]); domain.CodeOf(err) != domain.Internal {
		t.Errorf("a damaged secret: %v", err)
	}
}

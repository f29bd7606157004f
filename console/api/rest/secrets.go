package rest

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Params, scripts, messages and outputs may hold secrets. Callers that may change a job see them unmasked. Viewers and the
// audit log get them with the secrets masked.

// HidesSecrets reports whether the caller gets texts with their secrets masked.
func HidesSecrets(id auth.Identity) bool { return !id.Role.AtLeast(account.Operator) }

// HideSecrets is a huma transformer that masks the secrets of an answer for viewers.
func HideSecrets(ctx huma.Context, _ string, v any) (any, error) {
	if _, failed := v.(*problem.Problem); !failed && HidesSecrets(auth.FromContext(ctx.Context())) {
		return WithoutSecrets(v), nil
	}
	return v, nil
}

// secretFields are the fields with a text, or a value of any form, that may hold secrets.
var secretFields = []string{"param", "message", "output", "code", "diff", "data"}

// WithoutSecrets returns the JSON form of v with the secrets masked. If there is no secret, it returns v itself.
func WithoutSecrets(v any) any {
	b, err := json.Marshal(v)
	if err != nil || !slices.ContainsFunc(secretFields, func(name string) bool { return bytes.Contains(b, []byte(`"`+name+`"`)) }) {
		return v
	}
	var form any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&form) != nil || !maskFields(form) {
		return v
	}
	return form
}

// maskFields masks the fields within decoded JSON, and reports whether any had a secret.
func maskFields(form any) (found bool) {
	switch form := form.(type) {
	case map[string]any:
		for name, value := range form {
			if !slices.Contains(secretFields, name) {
				found = maskFields(value) || found
				continue
			}
			masked, some := domain.MaskJSON(value)
			form[name], found = masked, found || some
			if _, digest := form["sha256"].(string); digest && some && name == "code" {
				form["sha256"] = "" // a short secret could be guessed from the digest of the script
			}
		}
	case []any:
		for _, value := range form {
			found = maskFields(value) || found
		}
	}
	return found
}

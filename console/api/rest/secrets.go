package rest

import (
	"bytes"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// A param may hold secrets. Callers that may change a job see its param as it is. Viewers and the audit log get it with
// the secrets masked.

// HidesParams reports whether the caller gets params with their secrets masked.
func HidesParams(id auth.Identity) bool { return id.Role == account.Viewer }

// HideParams is a huma transformer that masks the params of an answer for viewers.
func HideParams(ctx huma.Context, _ string, v any) (any, error) {
	if HidesParams(auth.FromContext(ctx.Context())) {
		return WithoutSecrets(v), nil
	}
	return v, nil
}

// WithoutSecrets returns the JSON form of v with the secrets of every param masked. If no param has a secret, it
// returns v itself.
func WithoutSecrets(v any) any {
	b, err := json.Marshal(v)
	if err != nil || !bytes.Contains(b, []byte(`"param"`)) {
		return v
	}
	var form any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&form) != nil || !maskParams(form) {
		return v
	}
	return form
}

// maskParams masks params within decoded JSON, and reports whether any had a secret.
func maskParams(form any) (found bool) {
	switch form := form.(type) {
	case map[string]any:
		for name, value := range form {
			if param, ok := value.(string); ok && name == "param" {
				masked := domain.MaskParam(param)
				form[name], found = masked, found || masked != param
			} else if maskParams(value) {
				found = true
			}
		}
	case []any:
		for _, value := range form {
			found = maskParams(value) || found
		}
	}
	return found
}

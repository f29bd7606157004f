package api

import (
	"bytes"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Params may hold secrets. Who may change a job has to see its param whole; who only reads gets it with what it calls a
// secret masked, and so does the audit log.

func hidesParams(id auth.Identity) bool { return id.Role == account.Viewer }

// hideParams masks the params of an answer for those who only read.
func hideParams(ctx huma.Context, _ string, v any) (any, error) {
	if hidesParams(auth.FromContext(ctx.Context())) {
		return withoutSecrets(v), nil
	}
	return v, nil
}

// withoutSecrets returns what has the JSON form of v with every param in it masked, and v itself if none has a secret.
func withoutSecrets(v any) any {
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

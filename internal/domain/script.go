package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ScriptLanguages are the languages a script may be written in.
var ScriptLanguages = []string{"bash", "sh", "python", "node", "php", "powershell", "go"}

// MaxScriptBytes bounds a script's code. Written in base64 it fits into one NATS message by far.
const MaxScriptBytes = 256 << 10

// Script is source code that an executor runs instead of a handler. What a job has is the newest of its versions, which
// are all kept; the store numbers them.
type Script struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Remark   string `json:"remark"`
	Version  int    `json:"version,omitempty" readOnly:"true"`
	SHA256   string `json:"sha256,omitempty" readOnly:"true"`
}

// Validate names every faulty field at once, as an Invalid error.
func (s Script) Validate() error {
	var f Faults
	s.check(&f, "")
	return f.Err("the script is not valid")
}

// check notes what is wrong, with at before the name of each field.
func (s Script) check(f *Faults, at string) {
	oneOf(f, at+"language", s.Language, ScriptLanguages...)
	if len(s.Code) > MaxScriptBytes {
		f.Add(at+"code", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(s.Code), MaxScriptBytes))
	} else {
		f.text(at+"code", s.Code, 1, MaxScriptBytes)
	}
	f.text(at+"remark", s.Remark, 0, 1024)
}

// ScriptVersion is one version of a job's script. Code is empty in lists.
type ScriptVersion struct {
	JobID      JobID   `json:"job_id"`
	Version    int     `json:"version"`
	JobVersion int     `json:"job_version"` // the first version of the job that runs it
	Language   string  `json:"language"`
	Bytes      int     `json:"bytes"`
	SHA256     string  `json:"sha256"`
	Remark     string  `json:"remark"`
	Author     string  `json:"author"`
	CreatedAt  Instant `json:"created_at"`
	Code       string  `json:"code,omitempty"`
	// Diff is the unified diff from the version DiffFrom to this one, where it was asked for; empty if they are alike.
	Diff     *string `json:"diff,omitempty"`
	DiffFrom int     `json:"diff_from,omitempty"`
}

// Digest is the SHA-256 of a script's code in hexadecimal, by which executors know it.
func Digest(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// ContinueScript settles which script an edited spec has, before being the one until now: the same code in the same
// language stays the version that it is, unless a new remark is given. Otherwise Version becomes 0, which says that the
// store is to make a version of it. What a client says of version and digest counts for nothing.
func (s *JobSpec) ContinueScript(before *Script) {
	if s.Script == nil {
		return
	}
	now := *s.Script
	now.Version, now.SHA256 = 0, Digest(now.Code)
	if before != nil && now.Language == before.Language && now.Code == before.Code && (now.Remark == "" || now.Remark == before.Remark) {
		now = *before
	}
	s.Script = &now
}

// WithoutCode returns the spec as its versions are kept: of a script, what names its version.
func (s JobSpec) WithoutCode() JobSpec {
	if s.Script != nil {
		lean := *s.Script
		lean.Code, lean.Remark = "", ""
		s.Script = &lean
	}
	return s
}

package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// AgentLanguages lists the script languages of the stock agent.
var AgentLanguages = []string{"bash", "sh", "python", "node", "php", "powershell", "go"}

// Groovy is the script language that only executors of XXL-JOB run, so only jobs in their groups may use it.
const Groovy = "groovy"

// ScriptLanguages lists all script languages.
var ScriptLanguages = append(slices.Clone(AgentLanguages), Groovy)

// MaxScriptBytes is the maximum size of a script's code. Encoded in base64, it fits easily into one NATS message.
const MaxScriptBytes = 256 << 10

// Script is source code that an executor runs instead of a handler. A job runs the newest version of its script. The store
// numbers the versions and keeps all of them.
type Script struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Remark   string `json:"remark"`
	Version  int    `json:"version,omitempty" readOnly:"true"`
	SHA256   string `json:"sha256,omitempty" readOnly:"true"`
}

// Validate returns an Invalid error that names every faulty field.
func (s Script) Validate() error {
	var f Faults
	s.check(&f, "")
	return f.Err("the script is not valid")
}

// check adds the faults of the script. at is the prefix of each field's location.
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
	JobVersion int     `json:"job_version"` // the first version of the job with this script
	Language   string  `json:"language"`
	Bytes      int     `json:"bytes"`
	SHA256     string  `json:"sha256"`
	Remark     string  `json:"remark"`
	Author     string  `json:"author"`
	CreatedAt  Instant `json:"created_at"`
	Code       string  `json:"code,omitempty"`
	// Diff is the unified diff from version DiffFrom to this one if the caller asked for it. It is empty if they are equal.
	Diff     *string `json:"diff,omitempty"`
	DiffFrom int     `json:"diff_from,omitempty"`
}

// Digest returns the SHA-256 of a script's code in hexadecimal. Executors identify scripts by it.
func Digest(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// ContinueScript sets the script version and digest of an edited spec; before is the script before the edit. The same code in the
// same language keeps its version, unless there is a new remark. Otherwise Version becomes 0, and the store creates a new version.
// ContinueScript ignores the version and digest that a client sent.
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

// WithoutCode returns the spec as job versions store it: without the script's code, which the script's version identifies.
func (s JobSpec) WithoutCode() JobSpec {
	if s.Script != nil {
		lean := *s.Script
		lean.Code, lean.Remark = "", ""
		s.Script = &lean
	}
	return s
}

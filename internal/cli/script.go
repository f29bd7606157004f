package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

type jobScriptCmd struct {
	List    scriptListCmd    `cmd:"" help:"List the versions of a job's script."`
	Get     scriptGetCmd     `cmd:"" help:"Print a version of a job's script."`
	Set     scriptSetCmd     `cmd:"" help:"Give a job a new version of its script."`
	Diff    scriptDiffCmd    `cmd:"" help:"Show what changed between two versions."`
	Restore scriptRestoreCmd `cmd:"" help:"Make an old version the newest one."`
}

// onJob finds a job and does something about it.
func (a *app) onJob(cl *client.Client, ref string, do func(domain.Job) error) error {
	job, err := findJob(a.ctx, cl, ref)
	if err != nil {
		return err
	}
	return do(job)
}

type scriptListCmd struct {
	Job   string `arg:"" help:"The job's id, or group/name."`
	Limit int    `env:"BELFRY_LIMIT" default:"1000" help:"Most versions to list."`
}

func (*scriptListCmd) Help() string {
	return "Example:\n\n    belfry job script list tools/clean-up"
}

func (c *scriptListCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	return a.onJob(cl, c.Job, func(job domain.Job) error {
		versions, err := cl.Scripts(a.ctx, job.ID, c.Limit)
		if err != nil {
			return err
		}
		a.noteLimit(len(versions), c.Limit)
		return a.print(parent.Output, versions, func(t *table) {
			t.row("VERSION", "LANGUAGE", "BYTES", "CREATED", "AUTHOR", "JOB VERSION", "SHA256", "REMARK")
			for _, v := range versions {
				t.row(v.Version, v.Language, v.Bytes, v.CreatedAt, v.Author, v.JobVersion, shown(v.SHA256, 13), shown(v.Remark, 60))
			}
		})
	})
}

type scriptGetCmd struct {
	Job     string `arg:"" help:"The job's id, or group/name."`
	Version int    `arg:"" optional:"" help:"Which version; by default the newest."`
}

func (*scriptGetCmd) Help() string {
	return "It prints the code as it is; -o json and -o yaml print also what is known of it.\n\nExamples:\n\n" +
		"    belfry job script get tools/clean-up > clean-up.sh\n    belfry job script get tools/clean-up 3 -o yaml"
}

func (c *scriptGetCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	return a.onJob(cl, c.Job, func(job domain.Job) error {
		version, err := versionOr(job, c.Version)
		if err != nil {
			return err
		}
		v, err := cl.Script(a.ctx, job.ID, version, 0)
		if err != nil {
			return err
		}
		return a.printCode(parent.Output, v, v.Code)
	})
}

// versionOr returns the version that is asked for, the job's newest where none is.
func versionOr(job domain.Job, asked int) (int, error) {
	switch {
	case asked != 0:
		return asked, nil
	case job.Script == nil:
		return 0, fmt.Errorf("%s/%s has no script; it runs the handler %s", job.Group, printable(job.Name), printable(job.Handler))
	}
	return job.Script.Version, nil
}

// printCode prints text as it is, for programs as v. On a terminal nothing in it may steer that.
func (a *app) printCode(form string, v any, text string) error {
	if form == "json" || form == "yaml" {
		return a.print(form, v, nil)
	}
	if _, terminal := fileOf(a.stdout); terminal {
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = logText(lines[i], true)
		}
		text = strings.Join(lines, "\n")
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

type scriptSetCmd struct {
	Job      string `arg:"" help:"The job's id, or group/name."`
	File     string `short:"f" required:"" env:"BELFRY_SCRIPT_FILE" placeholder:"FILE" help:"File with the code; - is standard input."`
	Language string `env:"BELFRY_SCRIPT_LANGUAGE" placeholder:"LANGUAGE" help:"bash, sh, python, node, php, powershell or go; by default that of the job's script."`
	Remark   string `short:"m" env:"BELFRY_SCRIPT_REMARK" placeholder:"TEXT" help:"What to remember of this version."`
}

func (*scriptSetCmd) Help() string {
	return "The job's next run uses it. The same code again makes no version.\n\nExample:\n\n" +
		"    belfry job script set tools/clean-up -f clean-up.sh -m 'keep a week'"
}

func (c *scriptSetCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	code, err := a.readFile(c.File)
	if err != nil {
		return err
	}
	return a.onJob(cl, c.Job, func(job domain.Job) error {
		language := c.Language
		if language == "" {
			if job.Script == nil {
				return &usageError{"--language is needed: the job has no script"}
			}
			language = job.Script.Language
		}
		v, err := cl.SaveScript(a.ctx, job.ID, domain.Script{Language: language, Code: string(code), Remark: c.Remark})
		if err != nil {
			return err
		}
		return a.printVersion(parent.Output, job, v)
	})
}

// printVersion says which version of its script a job has now.
func (a *app) printVersion(form string, job domain.Job, v domain.ScriptVersion) error {
	return a.print(form, v, func(t *table) {
		done := "now has"
		if job.Script != nil && job.Script.Version == v.Version {
			done = "still has"
		}
		t.row(fmt.Sprintf("%s/%s %s version %d of its script", job.Group, job.Name, done, v.Version))
	})
}

type scriptDiffCmd struct {
	Job  string `arg:"" help:"The job's id, or group/name."`
	From int    `arg:"" help:"The older version."`
	To   int    `arg:"" optional:"" help:"The newer one; by default the newest."`
}

func (*scriptDiffCmd) Help() string {
	return "Example:\n\n    belfry job script diff tools/clean-up 3"
}

func (c *scriptDiffCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	if c.From < 1 || c.To < 0 {
		return &usageError{"versions count from 1"}
	}
	return a.onJob(cl, c.Job, func(job domain.Job) error {
		to, err := versionOr(job, c.To)
		if err != nil {
			return err
		}
		v, err := cl.Script(a.ctx, job.ID, to, c.From)
		if err != nil {
			return err
		}
		text := ""
		if v.Diff != nil {
			text = *v.Diff
		}
		return a.printCode(parent.Output, v, text)
	})
}

type scriptRestoreCmd struct {
	Job     string `arg:"" help:"The job's id, or group/name."`
	Version int    `arg:"" help:"Which version."`
	Remark  string `short:"m" env:"BELFRY_SCRIPT_REMARK" placeholder:"TEXT" help:"What to remember of the new version; by default which one was restored."`
}

func (*scriptRestoreCmd) Help() string {
	return "It becomes a new version with the old code; none is lost.\n\nExample:\n\n    belfry job script restore tools/clean-up 2"
}

func (c *scriptRestoreCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	return a.onJob(cl, c.Job, func(job domain.Job) error {
		v, err := cl.RestoreScript(a.ctx, job.ID, c.Version, c.Remark)
		if err != nil {
			return err
		}
		return a.printVersion(parent.Output, job, v)
	})
}

// codeFile is a field of scripts in files of jobs: a file with the code, which the server never sees.
const codeFile = "code_file"

// readCode puts the code of scripts into jobs that name a file for it, relative to theirs.
func readCode(file string, jobs []jobfile.Job) error {
	for _, j := range jobs {
		script, ok := j.Fields["script"].(map[string]any)
		if !ok || script[codeFile] == nil {
			continue
		}
		name, ok := script[codeFile].(string)
		if _, both := script["code"]; !ok || both || name == "" {
			return fmt.Errorf("%s: script: give either code, or code_file with the name of a file", j.Source)
		}
		if !filepath.IsAbs(name) && file != "-" {
			name = filepath.Join(filepath.Dir(file), name)
		}
		code, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: script.code_file: there is no %s", j.Source, name)
		}
		if err != nil {
			return fmt.Errorf("%s: script.code_file: %w", j.Source, err)
		}
		if len(code) > domain.MaxScriptBytes {
			return fmt.Errorf("%s: script.code_file: %s is over %d KiB", j.Source, name, domain.MaxScriptBytes>>10)
		}
		delete(script, codeFile)
		script["code"] = string(code)
	}
	return nil
}

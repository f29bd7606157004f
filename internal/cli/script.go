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
	Set     scriptSetCmd     `cmd:"" help:"Save a new version of a job's script."`
	Diff    scriptDiffCmd    `cmd:"" help:"Show the difference between two versions."`
	Restore scriptRestoreCmd `cmd:"" help:"Save an old version as the newest one."`
}

// onJob calls do with the job that ref names.
func (a *app) onJob(cl *client.Client, ref string, do func(domain.Job) error) error {
	job, err := findJob(a.ctx, cl, ref)
	if err != nil {
		return err
	}
	return do(job)
}

type scriptListCmd struct {
	Job   string `arg:"" help:"The job's id, or group/name."`
	Limit int    `env:"BELFRY_LIMIT" default:"1000" help:"Maximum number of versions to list."`
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
	Version int    `arg:"" optional:"" help:"Number of the version; by default the newest."`
}

func (*scriptGetCmd) Help() string {
	return "The command prints the code unchanged. With -o json and -o yaml it also prints the language, remark, author and time of the version.\n\nExamples:\n\n" +
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

// versionOr returns the requested version, or the job's newest one if version is 0.
func versionOr(job domain.Job, asked int) (int, error) {
	switch {
	case asked != 0:
		return asked, nil
	case job.Script == nil:
		return 0, fmt.Errorf("%s/%s has no script; it runs the handler %s", job.Group, printable(job.Name), printable(job.Handler))
	}
	return job.Script.Version, nil
}

// printCode prints text unchanged, or v as JSON or YAML. For a terminal it replaces control characters.
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
	Language string `env:"BELFRY_SCRIPT_LANGUAGE" placeholder:"LANGUAGE" help:"bash, sh, python, node, php, powershell or go; by default the language of the job's script."`
	Remark   string `short:"m" env:"BELFRY_SCRIPT_REMARK" placeholder:"TEXT" help:"Remark on this version."`
}

func (*scriptSetCmd) Help() string {
	return "The job's next run uses the new version. If neither the code nor the remark is changed, no version is created.\n\nExample:\n\n" +
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
				return &usageError{"--language is required, because the job has no script"}
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

// printVersion prints the current version of a job's script.
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
	To   int    `arg:"" optional:"" help:"The newer version; by default the newest."`
}

func (*scriptDiffCmd) Help() string {
	return "Example:\n\n    belfry job script diff tools/clean-up 3"
}

func (c *scriptDiffCmd) Run(a *app, parent *jobCmd, cl *client.Client) error {
	if c.From < 1 || c.To < 0 {
		return &usageError{"version numbers start at 1"}
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
	Version int    `arg:"" help:"Number of the version."`
	Remark  string `short:"m" env:"BELFRY_SCRIPT_REMARK" placeholder:"TEXT" help:"Remark on the new version; by default the number of the restored version."`
}

func (*scriptRestoreCmd) Help() string {
	return "The command saves the old code as a new version and keeps all versions.\n\nExample:\n\n    belfry job script restore tools/clean-up 2"
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

// codeFile is a field of scripts in job files. It names a file with the code, and is not sent to the server.
const codeFile = "code_file"

// readCode replaces code_file by the code in that file. The path is relative to the job file.
func readCode(file string, jobs []jobfile.Job) error {
	for _, j := range jobs {
		script, ok := j.Fields["script"].(map[string]any)
		if !ok || script[codeFile] == nil {
			continue
		}
		name, ok := script[codeFile].(string)
		if _, both := script["code"]; !ok || both || name == "" {
			return fmt.Errorf("%s: script: give either code or code_file (the name of a file), not both", j.Source)
		}
		if !filepath.IsAbs(name) && file != "-" {
			name = filepath.Join(filepath.Dir(file), name)
		}
		code, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: script.code_file: file %s does not exist", j.Source, name)
		}
		if err != nil {
			return fmt.Errorf("%s: script.code_file: %w", j.Source, err)
		}
		if len(code) > domain.MaxScriptBytes {
			return fmt.Errorf("%s: script.code_file: %s is larger than %d KiB", j.Source, name, domain.MaxScriptBytes>>10)
		}
		delete(script, codeFile)
		script["code"] = string(code)
	}
	return nil
}

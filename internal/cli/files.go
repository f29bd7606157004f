package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/config"
)

// confidential returns the environment variable of a flag whose value may be a secret. It returns "" for other flags.
func confidential(v *kong.Value) string {
	if len(v.Tag.Envs) == 0 || !config.Confidential(v.Target.Type()) {
		return ""
	}
	return v.Tag.Envs[0]
}

// secretFiles reads confidential settings of the selected command from the files that the environment names. As for any setting,
// a flag on the command line comes before the environment.
func secretFiles(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	env := confidential(flag.Value)
	if env == "" {
		return nil, nil
	}
	value, found, err := config.FromFile(env, os.LookupEnv)
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

// flagHelp adds the environment variables to a flag's help.
func flagHelp(v *kong.Value) string {
	help := kong.DefaultHelpValueFormatter(v)
	if env := confidential(v); env != "" {
		help = strings.Replace(help, "$"+env, fmt.Sprintf("$%s, or a file in $%s%s", env, env, config.FileSuffix), 1)
	}
	return help
}

package cli

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// The scripts call `belfry complete`, so that one implementation serves all shells and a script stays valid after an update.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.zsh
	zshCompletion string
	//go:embed completion.fish
	fishCompletion string
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

func (*completionCmd) Help() string {
	return "Load the script in the startup file of your shell, or store it where your shell looks for completions.\n\nExamples:\n\n" +
		"    source <(belfry completion bash)     # in ~/.bashrc\n" +
		"    source <(belfry completion zsh)      # in ~/.zshrc, after compinit\n" +
		"    belfry completion fish > ~/.config/fish/completions/belfry.fish"
}

func (c *completionCmd) Run(a *app) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	_, err := fmt.Fprint(a.stdout, script)
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words after belfry. The last one is being typed."`
}

func (*completeCmd) Help() string {
	return "Each line has a word and, after a tab, its help. No line means that the shell should offer files.\n\nExample:\n\n    belfry complete -- job li"
}

func (c *completeCmd) Run(a *app, k *kong.Context) error {
	for _, p := range complete(k.Model.Node, c.Words) {
		help, _, _ := strings.Cut(p.help, "\n")
		if _, err := fmt.Fprintf(a.stdout, "%s\t%s\n", p.word, help); err != nil {
			return err
		}
	}
	return nil
}

// proposal is a word that can follow.
type proposal struct{ word, help string }

// complete returns the words that can replace the last one of words.
func complete(node *kong.Node, words []string) []proposal {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var of *kong.Flag // whose value comes next
	only := false     // "--" came: no more flags
	for _, w := range words[:len(words)-1] {
		switch {
		case of != nil && w == "=": // bash splits words at =
		case of != nil:
			of = nil
		case only:
		case w == "--":
			only = true
		case strings.HasPrefix(w, "-"):
			of = valued(node, w)
		default:
			if child := childOf(node, w); child != nil {
				node = child
			}
		}
	}
	if of != nil {
		return matching(valuesOf(of.Value, ""), strings.TrimPrefix(last, "="))
	}
	if name, _, ok := strings.Cut(last, "="); ok && strings.HasPrefix(last, "--") && !only {
		if f := valued(node, name); f != nil {
			return matching(valuesOf(f.Value, name+"="), last)
		}
		return nil
	}
	if strings.HasPrefix(last, "-") && !only {
		return matching(flagsOf(node), last)
	}
	return matching(wordsOf(node), last)
}

func matching(all []proposal, prefix string) []proposal {
	return slices.DeleteFunc(all, func(p proposal) bool { return !strings.HasPrefix(p.word, prefix) })
}

// valued returns the flag of a word such as --group or -g if its value is the next word.
func valued(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				if f.IsBool() || f.IsCounter() {
					return nil
				}
				return f
			}
		}
	}
	return nil
}

func childOf(node *kong.Node, word string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == word || slices.Contains(c.Aliases, word) {
			return c
		}
	}
	return nil
}

func flagsOf(node *kong.Node) (out []proposal) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			out = append(out, proposal{"--" + f.Name, f.Help})
		}
	}
	return out
}

// wordsOf returns the subcommands of a command and the values of its arguments.
func wordsOf(node *kong.Node) (out []proposal) {
	for _, c := range node.Children {
		if !c.Hidden {
			out = append(out, proposal{c.Name, c.Help})
		}
	}
	for _, arg := range node.Positional {
		out = append(out, valuesOf(arg, "")...)
	}
	return out
}

// valuesOf returns the values that a flag or an argument can have, if it lists them.
func valuesOf(v *kong.Value, prefix string) (out []proposal) {
	if v.Enum == "" {
		return nil
	}
	for _, word := range v.EnumSlice() {
		out = append(out, proposal{prefix + word, ""})
	}
	return out
}

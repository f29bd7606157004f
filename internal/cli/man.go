package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/build"
)

type manCmd struct {
	Dir string `arg:"" type:"path" help:"Directory for the pages, which must exist."`
}

func (*manCmd) Help() string {
	return "The command writes belfry.1 and a page for each command, such as belfry-job.1. Packages contain these pages.\n\nExample:\n\n    belfry man /usr/share/man/man1"
}

func (c *manCmd) Run(_ *app, k *kong.Context) error {
	for name, text := range manPages(k.Model.Node) {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // for all users
			return err
		}
	}
	return nil
}

// manPages returns the man pages in roff by file name: one of the program, and one for each command, with its subcommands.
func manPages(program *kong.Node) map[string]string {
	pages := map[string]string{program.Name + ".1": manPage(program, "https://github.com/belfryhq/belfry")}
	for _, command := range program.Children {
		if !command.Hidden {
			pages[program.Name+"-"+command.Name+".1"] = manPage(command, program.Name+"(1)")
		}
	}
	return pages
}

// manPage returns the page of a command.
func manPage(node *kong.Node, related string) string {
	var w roff
	name := strings.ReplaceAll(node.FullPath(), " ", "-")
	if i := strings.Index(name, "-("); i >= 0 { // aliases
		name = name[:i]
	}
	w.macro("TH", strings.ToUpper(name), "1", "", "belfry "+build.Read().Version, "Belfry")
	w.macro("SH", "NAME")
	help, details, _ := strings.Cut(node.Help, "\n\n")
	summary, _, _ := strings.Cut(help, ". ") // one sentence, for whatis
	w.text(name + " - " + strings.TrimSuffix(summary, "."))
	w.macro("SH", "SYNOPSIS")
	w.text("belfry " + strings.TrimSpace(node.Summary()))
	if text := strings.TrimSpace(details + "\n\n" + node.Detail); text != "" {
		w.macro("SH", "DESCRIPTION")
		w.paragraphs(text)
	}
	w.options("OPTIONS", node)
	if node.Type == kong.ApplicationNode {
		w.commands(node)
	} else if len(node.Children) > 0 {
		w.macro("SH", "COMMANDS")
		w.subcommands(node)
	}
	w.macro("SH", "SEE ALSO")
	w.text(related)
	return w.String()
}

// commands lists the commands of the program. Each command has a separate page.
func (w *roff) commands(program *kong.Node) {
	w.macro("SH", "COMMANDS")
	for _, command := range program.Children {
		if !command.Hidden {
			w.item(program.Name+"-"+command.Name+"(1)", command.Help)
		}
	}
}

// subcommands describes all commands below node.
func (w *roff) subcommands(node *kong.Node) {
	for _, command := range node.Children {
		switch {
		case command.Hidden:
		case command.Leaf():
			w.macro("SS", "belfry "+command.Summary())
			w.text(command.Help)
			w.paragraphs(command.Detail)
			w.options("", command)
		default:
			w.subcommands(command)
		}
	}
}

// options describes the arguments and flags of a command, without those of its parents.
func (w *roff) options(title string, node *kong.Node) {
	if len(node.Positional)+len(node.Flags) == 0 {
		return
	}
	if title != "" {
		w.macro("SH", title)
	}
	for _, arg := range node.Positional {
		w.item(arg.Summary(), arg.Help)
	}
	for _, flag := range node.Flags {
		if !flag.Hidden {
			w.item(flag.String(), flagHelp(flag.Value))
		}
	}
}

// roff builds a text in the language of man pages.
type roff struct{ strings.Builder }

// roffText escapes a text: a hyphen that is typed as such, and a backslash. A line may not begin with a period or an apostrophe.
var roffText = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// macro writes a request, such as .SH NAME.
func (w *roff) macro(name string, args ...string) {
	w.WriteString("." + name)
	for _, arg := range args {
		w.WriteString(` "` + strings.ReplaceAll(roffText.Replace(arg), `"`, `""`) + `"`)
	}
	w.WriteString("\n")
}

// text writes lines of text.
func (w *roff) text(text string) {
	w.WriteString(strings.TrimPrefix(roffText.Replace("\n"+text), "\n") + "\n")
}

// item writes a term and its explanation.
func (w *roff) item(term, explanation string) {
	w.macro("TP")
	w.macro("B", term)
	w.text(explanation)
}

// paragraphs writes a help text. Its indented lines are examples.
func (w *roff) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		switch {
		case strings.TrimSpace(paragraph) == "":
		case strings.HasPrefix(paragraph, " "):
			w.WriteString(".PP\n.nf\n")
			w.text(paragraph)
			w.WriteString(".fi\n")
		default:
			w.macro("PP")
			w.text(paragraph)
		}
	}
}

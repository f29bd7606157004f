package match

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
)

// The bounds of templates.
const (
	stepsMax = 50_000  // iterations of all loops together
	workMax  = 4 << 20 // bytes that all functions together may return
)

// Param is a compiled template of a param. It is safe for concurrent use.
type Param struct{ template *template.Template }

// builtins are the predefined functions that return no text and therefore cannot build large values.
var builtins = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"}

// turn is the name of the function that each iteration of a loop calls. A template cannot name it.
const turn = "belfry_turn"

const paramName = "param"

// CompileParam compiles a template. For an empty template it returns nil, which renders the event's data as JSON. The error
// says where the fault is.
func CompileParam(source string) (*Param, error) {
	if source == "" {
		return nil, nil
	}
	if len(source) > domain.MaxParamBytes {
		return nil, fmt.Errorf("is %d bytes long; at most %d are allowed", len(source), domain.MaxParamBytes)
	}
	if !utf8.ValidString(source) || strings.ContainsRune(source, 0) {
		return nil, errors.New("must be UTF-8 without a NUL")
	}
	tree := parse.New(paramName)
	tree.Mode = parse.SkipFuncCheck
	trees := make(map[string]*parse.Tree)
	if _, err := tree.Parse(source, "", "", trees); err != nil {
		return nil, errors.New(placed(err))
	}
	if len(trees) > 1 || len(trees) == 1 && trees[paramName] == nil {
		return nil, errors.New("define and block are not allowed: a param is one template")
	}
	w := walk{source: source}
	w.list(tree.Root)
	if w.fault != "" {
		return nil, errors.New(w.fault)
	}
	t, err := template.New(paramName).Option("missingkey=error").Funcs((&work{}).functions()).AddParseTree(paramName, tree)
	if err != nil {
		return nil, errors.New(placed(err))
	}
	return &Param{t}, nil
}

// placed changes a template error's "template: param:1:2: …" to "line 1, column 2: …".
func placed(err error) string {
	text := strings.TrimPrefix(err.Error(), "template: "+paramName+":")
	at, rest, ok := strings.Cut(text, ": ")
	if !ok {
		return text
	}
	var line, column int
	switch n, _ := fmt.Sscanf(at, "%d:%d", &line, &column); n {
	case 1:
		return fmt.Sprintf("line %d: %s", line, rest)
	case 2:
		return fmt.Sprintf("line %d, column %d: %s", line, column+1, rest)
	}
	return text
}

// Render returns the param for an event. It is valid UTF-8 without NUL and has at most domain.MaxParamBytes.
func (p *Param) Render(ctx context.Context, v *View) (text string, err error) {
	text, _, err = p.render(ctx, v, all)
	return text, err
}

// render renders the param at one effort level and returns the cost, in the unit of filters. The error is errCostly if a higher
// level may succeed.
func (p *Param) render(ctx context.Context, v *View, e effort) (text string, cost uint64, err error) {
	if p == nil {
		text, err = v.data()
		return text, 1, err
	}
	ctx, cancel := context.WithTimeout(ctx, evalMax)
	defer cancel()
	w := &work{ctx: ctx, effort: e}
	text, err = p.execute(v, w)
	if w.costly {
		err = errCostly
	}
	return text, w.cost(), err
}

// data returns the param of a trigger without a template.
func (v *View) data() (string, error) {
	if n := len(v.in.Data); n > domain.MaxParamBytes {
		return "", fmt.Errorf("the event's data is %d bytes long, but a param has at most %d; select a part of it with a template", n, domain.MaxParamBytes)
	}
	return string(v.in.Data), nil
}

func (p *Param) execute(v *View, w *work) (text string, err error) {
	t, err := p.template.Clone()
	if err != nil {
		return "", err
	}
	defer func() {
		if r := recover(); r != nil {
			text, err = "", fmt.Errorf("executing it panicked: %v", r)
		}
	}()
	fields, err := v.fields()
	if err != nil {
		return "", err
	}
	var out bounded
	if err := t.Funcs(w.functions()).Execute(&out, fields); err != nil {
		var exec template.ExecError
		if errors.As(err, &exec) {
			return "", errors.New(placed(exec))
		}
		return "", err
	}
	switch text := out.String(); {
	case strings.ContainsRune(text, 0):
		return "", errors.New("the result has a NUL")
	case !utf8.ValidString(text):
		return "", errors.New("the result is not UTF-8")
	default:
		return text, nil
	}
}

// fields returns the template's dot.
func (v *View) fields() (map[string]any, error) {
	data, err := v.integers()
	return map[string]any{"event": map[string]any{
		"id": v.id.String(), "name": v.in.Name, "source": v.in.Source, "type": v.in.Type, "subject": v.in.Subject,
		"key": v.in.Key, "time": domain.At(v.at).String(), "data": data,
	}}, err
}

// bounded is a buffer with the maximum size of a param.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > domain.MaxParamBytes {
		return 0, fmt.Errorf("the result is over %d bytes long", domain.MaxParamBytes)
	}
	return b.Buffer.Write(p)
}

// work counts the cost of one execution.
type work struct {
	ctx    context.Context //nolint:containedctx // work lives for one execution
	effort effort
	turns  int
	nodes  int // template nodes that the iterations visited
	bytes  int
	costly bool // ended because it exceeded its effort level
}

// cost returns the cost so far, in the unit of filters.
func (w *work) cost() uint64 { return uint64(w.nodes + w.bytes/10) }

func (w *work) functions() template.FuncMap {
	return template.FuncMap{
		turn:      w.turn,
		"json":    w.json,
		"default": orDefault,
		"upper":   func(s string) (string, error) { return w.text(strings.ToUpper(s)) },
		"lower":   func(s string) (string, error) { return w.text(strings.ToLower(s)) },
		"trim":    func(s string) (string, error) { return w.text(strings.TrimSpace(s)) },
		"join":    w.join,
		"date":    w.date,
	}
}

// ownFunctions are the functions above that templates may call.
var ownFunctions = []string{"json", "default", "upper", "lower", "trim", "join", "date"}

// turn counts an iteration of a loop and returns an error after too many. nodes is the number of nodes in the loop's body.
func (w *work) turn(nodes int) (string, error) {
	if w.turns++; w.turns > stepsMax {
		return "", fmt.Errorf("its loops take over %d iterations", stepsMax)
	}
	w.nodes += nodes
	return "", w.goOn()
}

func (w *work) goOn() error {
	if w.effort < all && w.cost() > w.effort.most() { // at level all, stepsMax and workMax are the bounds
		w.costly = true
		return errCostly
	}
	if w.ctx.Err() != nil {
		return errTooLong
	}
	return nil
}

// text counts the bytes of a function's result and returns it.
func (w *work) text(s string) (string, error) {
	if w.bytes += len(s); w.bytes > workMax {
		return "", fmt.Errorf("its functions return over %d bytes", workMax)
	}
	return s, w.goOn()
}

func (w *work) json(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return w.text(strings.TrimSuffix(b.String(), "\n"))
}

func (w *work) join(separator string, list any) (string, error) {
	elements, ok := list.([]any)
	if !ok {
		return "", fmt.Errorf("join needs a list, not %s", kindOf(list))
	}
	var b strings.Builder
	for i, e := range elements {
		if i > 0 {
			b.WriteString(separator)
		}
		switch e := e.(type) {
		case string:
			b.WriteString(e)
		case int64, float64, bool:
			fmt.Fprint(&b, e)
		default:
			return "", fmt.Errorf("join needs a list of texts and numbers; element %d is %s", i, kindOf(e))
		}
		if b.Len() > domain.MaxParamBytes {
			return "", fmt.Errorf("join returns over %d bytes", domain.MaxParamBytes)
		}
	}
	return w.text(b.String())
}

// date formats an instant with a layout of Go's package time.
func (w *work) date(layout, instant string) (string, error) {
	t, err := time.Parse(time.RFC3339, instant)
	if err != nil {
		return "", fmt.Errorf("date needs an instant such as .event.time, not %q", clip(instant))
	}
	if len(layout) > 100 {
		return "", errors.New("date's layout has over 100 characters")
	}
	return w.text(t.UTC().Format(layout))
}

func orDefault(fallback, v any) any {
	if v == nil || v == "" {
		return fallback
	}
	return v
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case string:
		return "a text"
	case int64, float64:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	}
	return "an object"
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// walk checks a template for constructs that are not allowed and inserts a call of turn into each loop.
type walk struct {
	source string
	fault  string // the first
}

func (w *walk) refuse(at parse.Pos, why string) {
	if w.fault != "" {
		return
	}
	before := w.source[:min(int(at), len(w.source))]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	w.fault = fmt.Sprintf("line %d, column %d: %s", line, column, why)
}

func (w *walk) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		w.node(n)
	}
}

func (w *walk) node(n parse.Node) {
	switch n := n.(type) {
	case *parse.ActionNode:
		w.pipe(n.Pipe)
	case *parse.IfNode:
		w.branch(&n.BranchNode)
	case *parse.WithNode:
		w.branch(&n.BranchNode)
	case *parse.RangeNode:
		w.branch(&n.BranchNode)
		call := &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Pos, Line: n.Line, Cmds: []*parse.CommandNode{
			{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(turn).SetPos(n.Pos), number(n.Pos, 1+nodes(n.List))}}}}
		count := &parse.ActionNode{NodeType: parse.NodeAction, Pos: n.Pos, Line: n.Line, Pipe: call}
		n.List.Nodes = append([]parse.Node{count}, n.List.Nodes...)
	case *parse.TemplateNode:
		w.refuse(n.Pos, "template and block are not allowed: a param is one template")
	case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
	default:
		w.refuse(n.Position(), "this is not allowed here")
	}
}

// nodes counts the nodes of a list. It leaves out the bodies of inner loops, which count their own iterations.
func nodes(l *parse.ListNode) (n int) {
	if l == nil {
		return 0
	}
	for _, node := range l.Nodes {
		n++
		switch node := node.(type) {
		case *parse.IfNode:
			n += nodes(node.List) + nodes(node.ElseList)
		case *parse.WithNode:
			n += nodes(node.List) + nodes(node.ElseList)
		case *parse.RangeNode:
			n += nodes(node.ElseList)
		}
	}
	return n
}

func number(at parse.Pos, n int) *parse.NumberNode {
	return &parse.NumberNode{NodeType: parse.NodeNumber, Pos: at, IsInt: true, Int64: int64(n), Text: strconv.Itoa(n)}
}

func (w *walk) branch(b *parse.BranchNode) {
	w.pipe(b.Pipe)
	w.list(b.List)
	w.list(b.ElseList)
}

func (w *walk) pipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			w.argument(arg)
		}
	}
}

func (w *walk) argument(n parse.Node) {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		if !known(n.Ident) {
			w.refuse(n.Pos, fmt.Sprintf("there is no function %s; there are %s, %s", clip(n.Ident), strings.Join(ownFunctions, ", "), strings.Join(builtins, ", ")))
		}
	case *parse.PipeNode:
		w.pipe(n)
	case *parse.ChainNode:
		w.argument(n.Node)
	}
}

func known(function string) bool {
	for _, list := range [][]string{builtins, ownFunctions} {
		for _, f := range list {
			if f == function {
				return true
			}
		}
	}
	return false
}

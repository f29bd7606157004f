package match

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// The bounds of filters.
const (
	MaxFilterBytes = 4096
	costMax        = 100_000         // in cel-go's unit: about 1 per step and 0.1 per character of a string
	evalMax        = 3 * time.Second // the last resort; for all triggers of a message together
	checkEvery     = 16              // iterations of a loop
)

// effort is the part of costMax that a filter or a template may use. All triggers of an event are evaluated at a low level before
// any gets a higher one, so that expensive triggers do not use up the budget of the others. See Decide.
type effort int

const (
	little effort = iota
	more
	all
	efforts
)

// most returns the maximum cost of one trigger's filter, and likewise of its template.
func (e effort) most() uint64 { return [efforts]uint64{100, 2000, costMax}[e] }

// errCostly means that a higher effort level may succeed.
var errCostly = errors.New("it exceeds the cost of the current effort level")

// Filter is a compiled filter. It is safe for concurrent use.
type Filter struct {
	programs [efforts]func() (cel.Program, error) // one per effort level, created on first use
}

// environment is the CEL environment of filters. It is created once, because that takes milliseconds, and never changes.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewCustomEnv(
		cel.StdLib(),
		cel.ClearMacros(),
		cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.FilterMacro, cel.MapMacro, cel.MapFilterMacro),
		cel.ParserExpressionSizeLimit(MaxFilterBytes), cel.ParserRecursionLimit(100),
		cel.Variable("event.id", cel.StringType), cel.Variable("event.name", cel.StringType),
		cel.Variable("event.source", cel.StringType), cel.Variable("event.type", cel.StringType),
		cel.Variable("event.subject", cel.StringType), cel.Variable("event.key", cel.StringType),
		cel.Variable("event.time", cel.TimestampType), cel.Variable("event.data", cel.DynType),
	)
})

// CompileFilter compiles a filter. For an empty filter it returns nil, which lets every event pass. The error says where the
// fault is.
func CompileFilter(source string) (*Filter, error) {
	if strings.TrimSpace(source) == "" {
		return nil, nil
	}
	if len(source) > MaxFilterBytes {
		return nil, fmt.Errorf("is %d bytes long; at most %d are allowed", len(source), MaxFilterBytes)
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("create the CEL environment: %w", err)
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message)
	}
	if out := checked.OutputType(); !out.IsExactType(types.BoolType) && !out.IsExactType(types.DynType) {
		return nil, fmt.Errorf("must be true or false, not a value of type %s", out)
	}
	native := checked.NativeRep()
	if e := (sizes{}).check(native.Expr()); e != nil {
		at := native.SourceInfo().GetStartLocation(e.id)
		return nil, fmt.Errorf("line %d, column %d: %s", at.Line(), at.Column()+1, e.why)
	}
	f := &Filter{}
	for e := little; e < efforts; e++ {
		f.programs[e] = sync.OnceValues(func() (cel.Program, error) {
			return env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(e.most()), cel.CostTracking(costs{}), cel.InterruptCheckFrequency(checkEvery))
		})
	}
	if _, err := f.programs[little](); err != nil {
		return nil, err // such as a bad regular expression
	}
	return f, nil
}

// Pass reports whether the filter lets the event pass.
func (f *Filter) Pass(ctx context.Context, v *View) (pass bool, err error) {
	pass, _, err = f.pass(ctx, v, all)
	return pass, err
}

// pass evaluates the filter at one effort level and returns the cost. The error is errCostly if a higher level may succeed.
func (f *Filter) pass(ctx context.Context, v *View, e effort) (pass bool, cost uint64, err error) {
	if f == nil {
		return true, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, evalMax)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			pass, err = false, fmt.Errorf("evaluating it panicked: %v", r)
		}
	}()
	variables, err := v.variables()
	if err != nil {
		return false, 0, err
	}
	program, err := f.programs[e]()
	if err != nil {
		return false, 0, err
	}
	out, details, err := program.ContextEval(ctx, variables)
	if actual := details.ActualCost(); actual != nil {
		cost = *actual
	}
	var ended interpreter.EvalCancelledError
	switch {
	case e < all && errors.As(err, &ended) && ended.Cause == interpreter.CostLimitExceeded:
		return false, cost, errCostly
	case err != nil:
		return false, cost, err
	}
	pass, ok := out.Value().(bool)
	if !ok {
		return false, cost, fmt.Errorf("it says neither true nor false, but a value of type %s", out.Type().TypeName())
	}
	return pass, cost, nil
}

// View is one event as filters and templates see it. The data is decoded when the first of them needs it, because most events
// match no trigger. A View is not safe for concurrent use.
type View struct {
	id       domain.RunID
	in       *event.Incoming
	at       time.Time
	floats   func() (any, error) // the data with numbers as CEL represents those of JSON
	integers func() (any, error) // the data with integers kept as such, as templates print them
}

// NewView returns the View of an incoming event with its future id.
func NewView(id domain.RunID, in *event.Incoming) *View {
	v := &View{id: id, in: in, at: in.Time}
	if v.at.IsZero() {
		v.at = id.Time()
	}
	v.floats = sync.OnceValues(func() (any, error) { return decode(in.Data, toFloat) })
	v.integers = sync.OnceValues(func() (any, error) { return decode(in.Data, toInteger) })
	return v
}

func (v *View) variables() (map[string]any, error) {
	data, err := v.floats()
	return map[string]any{
		"event.id": v.id.String(), "event.name": v.in.Name, "event.source": v.in.Source, "event.type": v.in.Type,
		"event.subject": v.in.Subject, "event.key": v.in.Key, "event.time": v.at, "event.data": data,
	}, err
}

// decode decodes JSON and converts its numbers with number.
func decode(data []byte, number func(json.Number) any) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read the event's data: %w", err)
	}
	return numbers(v, number), nil
}

// numbers converts all numbers within a value, in place.
func numbers(v any, number func(json.Number) any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case []any:
		for i := range v {
			v[i] = numbers(v[i], number)
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k], number)
		}
	}
	return v
}

// toFloat returns infinity for a number beyond the range of float64.
func toFloat(n json.Number) any {
	f, _ := n.Float64() // the only possible error is a range error
	return f
}

// toInteger returns an int64 if possible, otherwise a float64, otherwise the number as it was written.
func toInteger(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String()
}

// sizes rejects expressions that could build values much larger than their input. See the package comment.
type sizes struct {
	only string // within the result expression of map: map's variable; otherwise empty
}

type fault struct {
	id  int64
	why string
}

func (s sizes) check(e ast.Expr) *fault {
	switch e.Kind() {
	case ast.LiteralKind, ast.UnspecifiedExprKind:
		return nil
	case ast.IdentKind:
		if s.only != "" && e.AsIdent() != s.only {
			return &fault{e.ID(), "the result of map may use its own variable only"}
		}
		return nil
	case ast.SelectKind:
		return s.check(e.AsSelect().Operand())
	case ast.CallKind:
		return s.call(e)
	case ast.ListKind, ast.MapKind:
		if !constant(e) {
			return &fault{e.ID(), "a list or map literal may hold constants only"}
		}
		return nil
	case ast.ComprehensionKind:
		return s.comprehension(e)
	case ast.StructKind:
	}
	return &fault{e.ID(), "messages are not allowed here"}
}

func (s sizes) call(e ast.Expr) *fault {
	c := e.AsCall()
	if s.only != "" && c.FunctionName() == operators.Add {
		return &fault{e.ID(), "the result of map may not add"}
	}
	args := c.Args()
	if c.FunctionName() == "matches" && (len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind) {
		return &fault{e.ID(), "the regular expression must be a constant"}
	}
	if c.IsMemberFunction() {
		if f := s.check(c.Target()); f != nil {
			return f
		}
	}
	for _, arg := range args {
		if f := s.check(arg); f != nil {
			return f
		}
	}
	return nil
}

func (s sizes) comprehension(e ast.Expr) *fault {
	if s.only != "" {
		return &fault{e.ID(), "the result of map may not loop"}
	}
	c := e.AsComprehension()
	if f := s.check(c.IterRange()); f != nil {
		return f
	}
	return s.step(c, c.LoopStep())
}

// step checks the step expression of a macro. The macros filter and map append to an accumulator, which the filter's own text
// cannot name.
func (s sizes) step(c ast.ComprehensionExpr, e ast.Expr) *fault {
	if e.Kind() != ast.CallKind {
		return s.check(e)
	}
	call := e.AsCall()
	args := call.Args()
	result := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == c.AccuVar() }
	switch {
	case call.FunctionName() == operators.Conditional && len(args) == 3 && result(args[2]):
		if f := s.check(args[0]); f != nil {
			return f
		}
		return s.step(c, args[1])
	case call.FunctionName() == operators.Add && len(args) == 2 && result(args[0]) && args[1].Kind() == ast.ListKind && args[1].AsList().Size() == 1:
		return sizes{only: c.IterVar()}.check(args[1].AsList().Elements()[0])
	}
	return s.check(e)
}

// constant reports whether an expression is a literal that consists of literals only.
func constant(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.ListKind:
		for _, el := range e.AsList().Elements() {
			if !constant(el) {
				return false
			}
		}
		return true
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			if !constant(m.Key()) || !constant(m.Value()) {
				return false
			}
		}
		return true
	case ast.CallKind: // a negative number
		c := e.AsCall()
		return c.FunctionName() == operators.Negate && constant(c.Args()[0])
	case ast.UnspecifiedExprKind, ast.ComprehensionKind, ast.IdentKind, ast.SelectKind, ast.StructKind:
	}
	return false
}

// costs computes the cost of operations that cel-go counts as one step, although they read values of any size: addition,
// comparison, size and conversion of values whose types are not known at compile time.
type costs struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (costs) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	size := 0
	switch function {
	case operators.Add:
		size = weigh(result, weightMax)
	case operators.Equals, operators.NotEquals, operators.In:
		for _, arg := range args {
			size += weigh(arg, weightMax)
		}
	case overloads.Size, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, overloads.TypeConvertDouble,
		overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		for _, arg := range args {
			if text, ok := arg.(types.String); ok { // the size of a list or map is known without reading it
				size += len(text)
			}
		}
	default:
		return nil // use cel-go's estimate
	}
	cost := uint64(1 + size/10)
	return &cost
}

// weightMax exceeds the cost of any allowed filter.
const weightMax = 20 * costMax

// weigh returns the number of characters and elements of a value on all levels. It stops counting at most.
func weigh(v ref.Val, most int) int {
	weight := 1
	switch v := v.(type) {
	case types.String:
		weight += len(v)
	case types.Bytes:
		weight += len(v)
	case traits.Lister:
		for it := v.Iterator(); weight < most && it.HasNext() == types.True; {
			weight += weigh(it.Next(), most-weight)
		}
	case traits.Mapper:
		for it := v.Iterator(); weight < most && it.HasNext() == types.True; {
			key := it.Next()
			weight += weigh(key, most-weight)
			if value, found := v.Find(key); found && weight < most {
				weight += weigh(value, most-weight)
			}
		}
	}
	return min(weight, most)
}

var errTooLong = errors.New("it took too long")

package store

import (
	"errors"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/internal/domain"
)

// registerTypes registers RunID as a uuid with a connection, and fast encodings of arrays.
func registerTypes(m *pgtype.Map) {
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapRunIDEncode}, m.TryWrapEncodePlanFuncs...)
	m.TryWrapScanPlanFuncs = append([]pgtype.TryWrapScanPlanFunc{wrapRunIDScan}, m.TryWrapScanPlanFuncs...)
	m.RegisterDefaultPgType(domain.RunID{}, "uuid")
	m.RegisterDefaultPgType([]domain.RunID{}, "_uuid")
	registerArrays(m)
}

type runIDCodec domain.RunID

// UUIDValue implements pgtype.UUIDValuer.
func (r runIDCodec) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: r, Valid: true}, nil
}

// ScanUUID implements pgtype.UUIDScanner.
func (r *runIDCodec) ScanUUID(v pgtype.UUID) error {
	if !v.Valid {
		return errors.New("cannot scan NULL into a run id")
	}
	*r = v.Bytes
	return nil
}

type runIDEncodePlan struct{ next pgtype.EncodePlan }

func (p *runIDEncodePlan) SetNext(next pgtype.EncodePlan) { p.next = next }
func (p *runIDEncodePlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(runIDCodec(value.(domain.RunID)), buf)
}

func wrapRunIDEncode(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	if v, ok := value.(domain.RunID); ok {
		return &runIDEncodePlan{}, runIDCodec(v), true
	}
	return nil, nil, false
}

type runIDScanPlan struct{ next pgtype.ScanPlan }

func (p *runIDScanPlan) SetNext(next pgtype.ScanPlan) { p.next = next }
func (p *runIDScanPlan) Scan(src []byte, dst any) error {
	return p.next.Scan(src, (*runIDCodec)(dst.(*domain.RunID)))
}

func wrapRunIDScan(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
	if v, ok := target.(*domain.RunID); ok {
		return &runIDScanPlan{}, (*runIDCodec)(v), true
	}
	return nil, nil, false
}

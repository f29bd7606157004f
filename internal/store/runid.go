package store

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/internal/domain"
)

// registerTypes registers RunID as a uuid with a connection.
func registerTypes(m *pgtype.Map) {
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapRunIDEncode}, m.TryWrapEncodePlanFuncs...)
	m.TryWrapScanPlanFuncs = append([]pgtype.TryWrapScanPlanFunc{wrapRunIDScan}, m.TryWrapScanPlanFuncs...)
	m.RegisterDefaultPgType(domain.RunID{}, "uuid")
	m.RegisterDefaultPgType([]domain.RunID{}, "_uuid")
	if t, known := m.TypeForOID(pgtype.UUIDArrayOID); known {
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: runIDsCodec{c}})
		}
	}
}

// runIDsCodec encodes run ids without reflection on each of them. Hot statements have thousands of them, as their first
// parameter.
type runIDsCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c runIDsCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]domain.RunID); ok && format == pgtype.BinaryFormatCode {
		return runIDsPlan{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type runIDsPlan struct{}

// paramsPerRun is about the size of a hot statement's parameters for each run. The driver starts each statement with a
// small buffer and would otherwise grow and copy it about ten times.
const paramsPerRun = 256

// Encode implements pgtype.EncodePlan.
func (runIDsPlan) Encode(value any, buf []byte) ([]byte, error) {
	ids := value.([]domain.RunID)
	if ids == nil {
		return nil, nil
	}
	buf = slices.Grow(buf, 64+len(ids)*paramsPerRun)
	dimensions := uint32(1)
	if len(ids) == 0 {
		dimensions = 0
	}
	for _, v := range []uint32{dimensions, 0, pgtype.UUIDOID} {
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	if len(ids) == 0 {
		return buf, nil
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(ids)))
	buf = binary.BigEndian.AppendUint32(buf, 1) // lower bound of the index
	for i := range ids {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(ids[i])))
		buf = append(buf, ids[i][:]...)
	}
	return buf, nil
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

package session

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// bothDrivers are the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestExplainNamesThePoolerAndKeepsTheDriversError(t *testing.T) {
	for state, pooled := range map[string]bool{"42P05": true, "26000": true, "08P01": false, "57P01": false, "42601": false} {
		for _, err := range bothDrivers(state) {
			got := Explain(err)
			if errors.Is(got, ErrSessionPooled) != pooled || !errors.Is(got, err) {
				t.Errorf("Explain(%v) = %v", err, got)
			}
		}
	}
	if again := Explain(Explain(bothDrivers("26000")[0])); again.Error() != Explain(bothDrivers("26000")[0]).Error() {
		t.Errorf("explained twice: %v", again)
	}
}

func TestExplainNamesTheFullLockTable(t *testing.T) {
	for _, err := range bothDrivers("53200") {
		if got := Explain(err); !errors.Is(got, ErrLockTableFull) || !errors.Is(got, err) {
			t.Errorf("Explain(%v) = %v", err, got)
		}
	}
}

func TestRefusesSettingIsAboutTheSettingAndNotTheSession(t *testing.T) {
	for state, refused := range map[string]bool{
		"22023": true, "42501": true, "55P02": true, "0A000": true, "42704": true,
		"42P05": false, "26000": false, "08P01": false, "57P01": false, "57014": false, "53300": false, "25006": false,
	} {
		for _, err := range bothDrivers(state) {
			if refusesSetting(err) != refused {
				t.Errorf("refusesSetting(%v) = %v", err, !refused)
			}
		}
	}
}

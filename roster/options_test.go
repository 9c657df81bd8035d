package roster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"go.uber.org/goleak"
)

func TestABadArgumentIsAnErrorThatNamesIt(t *testing.T) {
	pool, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for want, opt := range map[string]Option{
		`WithSchema("")`:         WithSchema(""),
		`it is 64`:               WithSchema(strings.Repeat("x", 64)),
		`WithSchema("a\x00b")`:   WithSchema("a\x00b"),
		`WithSchema("\xff")`:     WithSchema("\xff"),
		`WithSchema("pg_toast")`: WithSchema("pg_toast"),
		"WithPublishInterval(999ms): want 1s <= interval <= 1h0m0s": WithPublishInterval(999 * time.Millisecond),
		"WithPublishInterval(1h0m1s)":                               WithPublishInterval(time.Hour + time.Second),
		"got 101":                                                   WithVersion(strings.Repeat("v", 101)),
		`WithVersion("\xff")`:                                       WithVersion("\xff"),
		`metadata "a": "\x00"`:                                      WithMetadata(map[string]string{"a": "\x00"}),
		`metadata "\xff"`:                                           WithMetadata(map[string]string{"\xff": "a"}),
		"at most 8192 bytes":                                        WithMetadata(map[string]string{"a": strings.Repeat("x", 8192)}),
		"WithRetention(59m0s, 1): want 1h0m0s <= age":               WithRetention(59*time.Minute, 1),
		"<= age <= 87600h0m0s":                                      WithRetention(87601*time.Hour, 1),
		"want 1 <= terms <= 1000000":                                WithRetention(time.Hour, 0),
		"WithRetention(1h0m0s, 1000001)":                            WithRetention(time.Hour, 1_000_001),
		"WithOnError":                                               WithOnError(nil),
		"option 1 is nil":                                           nil,
	} {
		if _, err := New(pool, opt); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that wraps ErrConfig and has %q", err, want)
		}
	}
	if _, err := New(nil); !errors.Is(err, ErrConfig) {
		t.Errorf("a nil pool: got error %v", err)
	}
	r, err := New(pool, WithSchema(strings.Repeat("x", 63)), WithMetadata(nil), WithPublishInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(nil); !errors.Is(err, ErrConfig) {
		t.Errorf("Add of a nil elector: got error %v", err)
	}
	if err := r.SetMetadata(map[string]string{"a": "\x00"}); !errors.Is(err, ErrConfig) {
		t.Errorf("SetMetadata: got error %v", err)
	}
}

func TestTheDefaultsAreTheDocumented(t *testing.T) {
	c, err := configure(nil)
	if err != nil || c.schema != "pgelector" || c.interval != 15*time.Second || string(c.metadata) != "{}" || c.age != 30*24*time.Hour || c.keep != 10_000 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"time"

	"github.com/pgelector/pgelector/internal/pin"
)

// pgxStdlib is the package of the only driver whose connections are called by reflection.
const pgxStdlib = "github.com/jackc/pgx/v5/stdlib"

// A pgxConn is a connection of pgx.
type pgxConn struct {
	wait func([]reflect.Value) []reflect.Value // pgx.Conn.WaitForNotification
	net  net.Conn
}

// pgxOf returns the connection of pgx that the driver's connection is, or nil. It imports
// nothing, and names each method by a constant: with a variable the linker would keep every
// method of the program.
func pgxOf(conn any) waiter {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().PkgPath() != pgxStdlib {
		return nil
	}
	return waiterBelow(v)
}

// waiterBelow returns the connection of pgx below that of its stdlib, or nil if a version of pgx has other methods.
func waiterBelow(v reflect.Value) waiter {
	own, ok := resultOf(v.MethodByName("Conn"))
	if !ok {
		return nil
	}
	pg, ok := resultOf(own.MethodByName("PgConn"))
	if !ok {
		return nil
	}
	wire, ok := pg.Interface().(interface{ Conn() net.Conn })
	// Not the method of PgConn, which leaves each notification in the buffer of pgx.Conn.
	wait := own.MethodByName("WaitForNotification")
	if !ok || !wait.IsValid() || wait.Type().NumIn() != 1 || wait.Type().In(0) != reflect.TypeFor[context.Context]() ||
		wait.Type().NumOut() != 2 || wait.Type().Out(1) != reflect.TypeFor[error]() {
		return nil
	}
	return pgxConn{wait.Call, wire.Conn()}
}

// resultOf calls a method without arguments that returns a pointer.
func resultOf(method reflect.Value) (result reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 || method.Type().Out(0).Kind() != reflect.Pointer {
		return result, false
	}
	result = method.Call(nil)[0]
	return result, !result.IsNil()
}

// Close closes the network connection below pgx, and so ends a wait.
func (c pgxConn) Close() error { return c.net.Close() }

// WaitForEnd ends the wait by a deadline, not by the context of the call: the user's
// configuration of pgx decides what the end of a context does, and it may cost the connection
// or send a cancel request.
func (c pgxConn) WaitForEnd(ctx context.Context) (err error) {
	if err := c.net.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("%w: their network connection knows no deadlines: %w", pin.ErrDeaf, err)
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-set
			_ = c.net.SetReadDeadline(time.Time{})
		}
	}()
	background := []reflect.Value{reflect.ValueOf(context.Background())}
	for {
		err, _ = c.wait(background)[1].Interface().(error)
		var network net.Error
		switch {
		case err == nil && ctx.Err() == nil: // a notification
		case err == nil:
			return nil
		case !errors.As(err, &network) || !network.Timeout():
			return err
		case ctx.Err() == nil: // another deadline than ours
			return fmt.Errorf("%w: their network connection has deadlines of its own: %w", pin.ErrDeaf, err)
		default:
			return nil
		}
	}
}

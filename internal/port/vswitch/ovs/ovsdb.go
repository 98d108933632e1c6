// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// This file is a client for OVSDB, the JSON-RPC protocol of RFC 7047. It implements the few methods
// that the driver needs.
//
// maxMessage bounds one message of the server, in bytes. A thousand ports need about 1 MB.
const maxMessage = 16 << 20

// connection is a JSON-RPC 1.0 connection to the database server. Messages are not framed: one JSON
// value follows another. The connection carries one call at a time.
type connection struct {
	conn    net.Conn
	bounded *io.LimitedReader
	decoder *json.Decoder
	lastID  uint64
}

// message is a request, a response or a notification.
type message struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// rpcError is the server's error for a whole call.
type rpcError struct{ method, text string }

func (e *rpcError) Error() string { return fmt.Sprintf("%s: %s", e.method, e.text) }

// connect returns a connection that ends with ctx.
func (d *Driver) connect(ctx context.Context) (*connection, func(), error) {
	conn, err := vswitch.Dial(ctx, d.Socket())
	if err != nil {
		return nil, nil, d.unavailable(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return newConnection(conn), func() { stop(); conn.Close() }, nil
}

func newConnection(conn net.Conn) *connection {
	bounded := &io.LimitedReader{R: conn}
	return &connection{conn: conn, bounded: bounded, decoder: json.NewDecoder(bounded)}
}

// unavailable wraps an error of the connection. After ctx has ended, that is the reason.
func (d *Driver) unavailable(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = errors.New("timed out")
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE), errors.Is(err,
		unix.ECONNRESET):
		err = errors.New("the server closed the connection")
	case errors.As(err, &op):
		err = op.Err
	}
	return &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.Socket(), Err: err, Down: ctx.Err() == nil &&
		vswitch.IsNotListening(err)}
}

// call sends a request and returns the result. Notifications that arrive meanwhile are dropped.
func (c *connection) call(method string, params any) (json.RawMessage, error) {
	c.lastID++
	if err := c.send(map[string]any{"method": method, "params": params, "id": c.lastID}); err != nil {
		return nil, err
	}
	for {
		m, err := c.receive()
		if err != nil {
			return nil, err
		}
		if m.Method != "" || string(m.ID) != fmt.Sprint(c.lastID) {
			continue
		}
		if len(m.Error) > 0 && string(m.Error) != "null" {
			return nil, &rpcError{method, diag.Excerpt(string(m.Error), diag.MaxExcerpt)}
		}
		return m.Result, nil
	}
}

// receive returns the next message. It replies to the server's echo requests, with which the server
// detects dead clients.
func (c *connection) receive() (message, error) {
	for {
		var m message
		c.bounded.N = maxMessage
		if err := c.decoder.Decode(&m); err != nil {
			if c.bounded.N == 0 {
				err = fmt.Errorf("the server sent a message of more than %d bytes", maxMessage)
			}
			return m, err
		}
		if m.Method != "echo" {
			return m, nil
		}
		if err := c.send(map[string]any{"result": m.Params, "error": nil, "id": m.ID}); err != nil {
			return m, err
		}
	}
}

// send writes one JSON-RPC message. The protocol has no frames: messages are concatenated JSON values (RFC 7047, §4).
func (c *connection) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.conn.Write(data)
	return err
}

const database = "Open_vSwitch"

// operation is one operation of a transaction, RFC 7047 section 5.2.
type operation map[string]any

// condition is a column, a function and a value.
type condition [3]any

// where returns the "where" of an operation, which must be a list even without conditions (RFC 7047, §5.2).
func where(conditions ...condition) []condition {
	if conditions == nil {
		return []condition{} // all rows
	}
	return conditions
}

func selectRows(table string, columns []string, conditions ...condition) operation {
	return operation{"op": "select", "table": table, "where": where(conditions...), "columns": columns}
}

func mutateRows(table string, mutations [][3]any, conditions ...condition) operation {
	return operation{"op": "mutate", "table": table, "where": where(conditions...), "mutations": mutations}
}

// operationResult is the result of one operation.
type operationResult struct {
	Rows    json.RawMessage `json:"rows"`
	Error   string          `json:"error"`
	Details string          `json:"details"`
}

// databaseError is the error of one operation. The transaction has changed nothing.
type databaseError struct {
	Operation string // "commit" for an error of the whole transaction
	Code      string // the name of the error in RFC 7047
	Details   string
}

func (e *databaseError) Error() string {
	text := e.Operation + ": " + e.Code
	if e.Details != "" {
		text += ": " + e.Details
	}
	return diag.Excerpt(text, diag.MaxExcerpt)
}

// isTimeout reports whether the condition of a wait operation was not met in time.
func isTimeout(err error) bool {
	var refused *databaseError
	return errors.As(err, &refused) && refused.Code == "timed out"
}

// transact runs the operations in one transaction. It returns one result for each operation.
func (c *connection) transact(operations ...operation) ([]*operationResult, error) {
	params := []any{database}
	for _, op := range operations {
		params = append(params, op)
	}
	answer, err := c.call("transact", params)
	if err != nil {
		return nil, err
	}
	return parseResults(operations, answer)
}

// parseResults parses the result of a transaction (RFC 7047, §4.1.3). The result has an additional element if
// the commit failed.
func parseResults(operations []operation, answer []byte) ([]*operationResult, error) {
	var results []*operationResult // null for every operation after a failed one
	if err := json.Unmarshal(answer, &results); err != nil {
		return nil, fmt.Errorf("the server's answer has an unexpected form: %w", err)
	}
	for i, r := range results {
		if r == nil || r.Error == "" {
			continue
		}
		name := "commit"
		if i < len(operations) {
			name = fmt.Sprint(operations[i]["op"])
			if table := operations[i]["table"]; table != nil {
				name += fmt.Sprint(" ", table)
			}
		}
		return nil, &databaseError{name, r.Error, r.Details}
	}
	if len(results) < len(operations) {
		return nil, fmt.Errorf("the server answered %d of %d operations", len(results), len(operations))
	}
	if i := slices.Index(results, nil); i >= 0 {
		return nil, fmt.Errorf("the server did not answer operation %d", i)
	}
	return results, nil
}

// uuid identifies a row, ["uuid", "…"] in JSON.
type uuid string

func (u uuid) MarshalJSON() ([]byte, error) { return json.Marshal([]string{"uuid", string(u)}) }

// UnmarshalJSON decodes ["uuid", TEXT] (RFC 7047, §5.1).
func (u *uuid) UnmarshalJSON(data []byte) error {
	var pair []string
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] != "uuid" {
		return fmt.Errorf("invalid value %.100s: must be a UUID", data)
	}
	*u = uuid(pair[1])
	return nil
}

// newRow refers to a row that the same transaction inserts.
type newRow string

func (n newRow) MarshalJSON() ([]byte, error) {
	return json.Marshal([]string{"named-uuid", string(n)})
}

// set is the value of a column with any number of values. In JSON it is ["set", […]], or the value
// itself if there is exactly one.
type set[T any] []T

// MarshalJSON encodes ["set", [VALUE, …]] (RFC 7047, §5.1).
func (s set[T]) MarshalJSON() ([]byte, error) {
	values := []T(s)
	if values == nil {
		values = []T{}
	}
	return json.Marshal([]any{"set", values})
}

// UnmarshalJSON also decodes a single value: the server sends a set with one element without its list.
func (s *set[T]) UnmarshalJSON(data []byte) error {
	*s = nil
	var pair []json.RawMessage
	if json.Unmarshal(data, &pair) == nil && len(pair) == 2 && string(pair[0]) == `"set"` {
		return json.Unmarshal(pair[1], (*[]T)(s))
	}
	var one T
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*s = set[T]{one}
	return nil
}

// optional returns a set of v, or an empty set if v is zero.
func optional[T comparable](v T) set[T] {
	var zero T
	if v == zero {
		return nil
	}
	return set[T]{v}
}

// first returns the first value, or zero.
func (s set[T]) first() T {
	var v T
	if len(s) > 0 {
		v = s[0]
	}
	return v
}

// stringMap is a map of strings, ["map", [[key, value], …]] in JSON.
type stringMap map[string]string

// MarshalJSON encodes ["map", [[KEY, VALUE], …]] (RFC 7047, §5.1), sorted by key.
func (m stringMap) MarshalJSON() ([]byte, error) {
	pairs := [][2]string{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{key, m[key]})
	}
	return json.Marshal([]any{"map", pairs})
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (m *stringMap) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || string(pair[0]) != `"map"` {
		return fmt.Errorf("invalid value %.100s: must be a map", data)
	}
	var pairs [][2]string
	if err := json.Unmarshal(pair[1], &pairs); err != nil {
		return err
	}
	*m = make(stringMap, len(pairs))
	for _, p := range pairs {
		(*m)[p[0]] = p[1]
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/vswitch"
)

// maxMessage bounds one message of the server, in bytes. A thousand ports need about 1 MB.
const maxMessage = 16 << 20

// connectPause is the time until the next attempt while the server's queue of new clients is full.
const connectPause = 5 * time.Millisecond

// connection is a JSON-RPC 1.0 connection to the database server. Messages follow each other without
// framing. It carries one call at a time.
type connection struct {
	conn    net.Conn
	bounded *io.LimitedReader
	decoder *json.Decoder
	lastID  uint64
}

// message is a request, an answer or a notification.
type message struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// rpcError is the server's refusal of a whole call.
type rpcError struct{ method, text string }

func (e *rpcError) Error() string { return fmt.Sprintf("%s: %s", e.method, e.text) }

// connect returns a connection that ends with ctx.
func (d *Driver) connect(ctx context.Context) (*connection, func(), error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", d.endpoint())
	for errors.Is(err, unix.EAGAIN) && ctx.Err() == nil { // too many clients connect at this moment
		time.Sleep(connectPause)
		conn, err = dialer.DialContext(ctx, "unix", d.endpoint())
	}
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		err = errors.New("the server closed the connection")
	case errors.As(err, &op):
		err = op.Err
	}
	return &vswitch.UnavailableError{Switch: d.Name, Endpoint: d.endpoint(), Err: err}
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
			return nil, &rpcError{method, diag.Excerpt(string(m.Error), 400)}
		}
		return m.Result, nil
	}
}

// receive returns the next message. It answers the server's echo requests, by which the server finds
// dead clients.
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

func (c *connection) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.conn.Write(data)
	return err
}

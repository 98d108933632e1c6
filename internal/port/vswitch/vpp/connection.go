// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// callTimeout bounds one request and its replies. VPP takes less than 1 ms for most requests.
	callTimeout = 5 * time.Second
	// maxMessage bounds a message. The largest is the table of messages, with 66 bytes for each of
	// about 860.
	maxMessage = 1 << 20
	// maxDetails bounds the number of replies to one dump.
	maxDetails = 1 << 16

	frameHeaderSize = 16
)

// connection is one connection to VPP's API. It carries one call at a time.
type connection struct {
	conn  net.Conn
	index uint32            // index of this client
	ids   map[string]uint16 // message IDs by name with checksum
	known map[uint16]bool   // IDs of all messages
	last  uint32            // context of the last request
	stop  func() bool       // stops the hook on the caller's context
}

// errDown marks the error of a socket without a listener. Its text is empty, so that it can be
// joined to the visible error.
var errDown = errors.New("")

// missingMessage returns the error for a message that VPP lacks, or has with another definition. It
// contains VPP's version and is an errdefs.ErrNotImplemented.
func (c *connection) missingMessage(name string) error {
	program := "VPP"
	if c.knowsMessage(showVersion.request) && c.knowsMessage(showVersion.answer) {
		var version showVersionReply
		if err := c.call(showVersion, &version); err != nil {
			return err
		}
		program += " " + diag.Excerpt(text(version.Version[:]), diag.MaxQuoted)
	}
	return errdefs.ErrNotImplemented.WithMessage(program + " has no message " + name)
}

// connect connects to VPP and reads its table of messages. While VPP's listen queue is full it
// retries. When ctx ends, the connection is closed, and a blocked call returns.
func connect(ctx context.Context, socket string) (*connection, error) {
	conn, err := vswitch.Dial(ctx, socket)
	if err != nil {
		isDown := ctx.Err() == nil && vswitch.IsNotListening(err)
		if err = unavailable("connect", err); isDown {
			err = fmt.Errorf("%w%w", err, errDown)
		}
		return nil, err
	}
	c := &connection{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	if err := c.create(); err != nil {
		c.close()
		return nil, unavailable("sockclnt_create", err)
	}
	return c, nil
}

func (c *connection) close() {
	c.stop()
	c.conn.Close()
}

// create registers this client and reads the table of messages.
func (c *connection) create() error {
	c.setDeadline()
	request := binary.BigEndian.AppendUint16(nil, idSockclntCreate)
	request = binary.BigEndian.AppendUint32(request, 0) // the context
	var name [64]byte
	copy(name[:], "jackfield")
	if err := c.send(append(request, name[:]...)); err != nil {
		return err
	}
	message, err := c.receive()
	if err != nil {
		return err
	}
	var head struct {
		ID                   uint16
		ClientIndex, Context uint32
		Response             int32
		Index                uint32
		Count                uint16
	}
	rest, err := decode(message, &head)
	if err != nil {
		return err
	}
	if head.ID != idSockclntCreateReply || head.Response != 0 {
		return errdefs.ErrUnknown.WithMessage(fmt.Sprintf("message %d with result %d in reply", head.ID, head.Response))
	}
	table := make([]messageTableEntry, head.Count)
	if _, err := decode(rest, table); err != nil {
		return err
	}
	c.index, c.ids, c.known = head.Index, make(map[string]uint16, len(table)), make(map[uint16]bool, len(table))
	for _, entry := range table {
		c.ids[text(entry.Name[:])] = entry.ID
		c.known[entry.ID] = true
	}
	return nil
}

// call sends a request, the concatenation of its parts, and decodes the reply. A negative result is
// a *retvalError.
func (c *connection) call(e exchange, reply any, request ...any) error {
	name := e.request
	replyID, ok := c.ids[e.answer]
	if !ok {
		return c.missingMessage(e.answer)
	}
	if !c.knowsMessage(name) {
		return c.missingMessage(name)
	}
	c.setDeadline()
	number, err := c.request(name, request...)
	if err != nil {
		return unavailable(name, err)
	}
	for {
		id, answered, body, err := c.receiveReply()
		if err != nil {
			return unavailable(name, err)
		}
		// The connection carries one call at a time, so no other reply is lost here.
		if id != replyID || answered != number {
			continue // an event, or the reply to an earlier call that timed out
		}
		// Every reply begins with its result.
		var result retvalReply
		if _, err := decode(body, &result); err != nil {
			return unavailable(name, err)
		}
		if result.Retval < 0 {
			return &retvalError{name, result.Retval}
		}
		if rest, err := decode(body, reply); err != nil || len(rest) != 0 {
			return unavailable(name, errLength)
		}
		return nil
	}
}

// dump sends a request with any number of replies, and calls found with the body of each. VPP does
// not mark the last reply, so dump sends a ping, whose reply ends the list.
func (c *connection) dump(e exchange, request any, found func(body []byte) error) error {
	name := e.request
	detailsID, ok1 := c.ids[e.answer]
	endID, ok2 := c.ids[controlPing.answer]
	if !ok1 || !ok2 {
		return c.missingMessage(e.answer)
	}
	for _, message := range []string{name, controlPing.request} {
		if !c.knowsMessage(message) {
			return c.missingMessage(message)
		}
	}
	c.setDeadline()
	number, err := c.request(name, request)
	if err != nil {
		return unavailable(name, err)
	}
	// VPP handles messages in order, so the reply to the ping follows the last detail.
	ping, err := c.request(controlPing.request)
	if err != nil {
		return unavailable(name, err)
	}
	for range maxDetails {
		id, answered, body, err := c.receiveReply()
		switch {
		case err != nil:
		case id == endID && answered == ping:
			return nil
		case id == detailsID && answered == number:
			err = found(body)
		}
		if err != nil {
			return unavailable(name, err)
		}
	}
	return unavailable(name, errdefs.ErrUnknown.WithMessage(fmt.Sprintf("more than %d messages in reply", maxDetails)))
}

// request sends a message of VPP's table, and returns its context, which identifies the reply.
func (c *connection) request(name string, body ...any) (number uint32, err error) {
	c.last++
	message := binary.BigEndian.AppendUint16(nil, c.ids[name])
	message = binary.BigEndian.AppendUint32(message, c.index)
	message = binary.BigEndian.AppendUint32(message, c.last)
	for _, part := range body {
		if message, err = binary.Append(message, binary.BigEndian, part); err != nil {
			return 0, err
		}
	}
	return c.last, c.send(message)
}

func (c *connection) setDeadline() { _ = c.conn.SetDeadline(time.Now().Add(callTimeout)) }

// send writes one frame: 8 unused bytes, the length, 4 unused bytes, and the message.
func (c *connection) send(message []byte) error {
	frame := make([]byte, frameHeaderSize, frameHeaderSize+len(message))
	binary.BigEndian.PutUint32(frame[8:], uint32(len(message)))
	_, err := c.conn.Write(append(frame, message...))
	return err
}

// receive reads one message.
func (c *connection) receive() ([]byte, error) {
	var header [frameHeaderSize]byte
	if _, err := io.ReadFull(c.conn, header[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[8:])
	if length > maxMessage {
		return nil, errdefs.ErrUnknown.WithMessage(fmt.Sprintf("a message of %d bytes: must be at most %d", length,
			maxMessage))
	}
	message := make([]byte, length)
	_, err := io.ReadFull(c.conn, message)
	return message, err
}

// receiveReply reads one message and returns its parts. answered is the context of the request.
func (c *connection) receiveReply() (id uint16, answered uint32, body []byte, err error) {
	message, err := c.receive()
	if err != nil {
		return 0, 0, nil, err
	}
	var head struct {
		ID      uint16
		Context uint32
	}
	body, err = decode(message, &head)
	if err == nil && !c.known[head.ID] {
		err = errdefs.ErrUnknown.WithMessage(fmt.Sprintf("a message with the unknown number %d", head.ID))
	}
	return head.ID, head.Context, body, err
}

var errLength = errdefs.ErrUnknown.WithMessage("a message does not have the length of its definition")

// decode fills value, a pointer to a struct or a slice, from the beginning of data, and returns the rest.
func decode(data []byte, value any) ([]byte, error) {
	n, err := binary.Decode(data, binary.BigEndian, value)
	if err != nil {
		return nil, errLength
	}
	return data[n:], nil
}

// text returns a string that VPP pads with NULs.
func text(field []byte) string {
	field, _, _ = bytes.Cut(field, []byte{0})
	return string(field)
}

// unavailable returns the error of a call without a valid reply. The connection is closed when the
// caller's context ends, so a closed connection is reported as a timeout.
func unavailable(message string, err error) error {
	var timeout net.Error
	switch {
	case errdefs.IsNotImplemented(err): // a missing message
		return err
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, net.ErrClosed), errors.Is(err,
		context.DeadlineExceeded):
		err = errors.New("timed out")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE), errors.Is(err,
		unix.ECONNRESET):
		err = errors.New("VPP closed the connection")
	}
	return errdefs.ErrUnavailable.WithMessage(message + ": " + diag.Excerpt(err.Error(), 2*diag.MaxQuoted))
}

// SPDX-License-Identifier: Apache-2.0

package hostsocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// keepConnected runs a session on each connection, one after the other, until ctx is done.
func keepConnected(ctx context.Context, path string, out io.Writer, session func(net.Conn) error) error {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			err = session(conn)
			stop()
			conn.Close()
		}
		fmt.Fprintln(out, "waits:", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
	return nil
}

// WatchOVSDB prints the server's ID for each connection to a database server (RFC 7047). A server has another ID after each start.
func WatchOVSDB(ctx context.Context, path string, out io.Writer) error {
	return keepConnected(ctx, path, out, func(conn net.Conn) error {
		if _, err := conn.Write([]byte(`{"method":"get_server_id","params":[],"id":1}`)); err != nil {
			return err
		}
		for in := json.NewDecoder(conn); ; {
			var message struct {
				Method         string
				Params, Result json.RawMessage
				ID             json.RawMessage
			}
			if err := in.Decode(&message); err != nil {
				return err
			}
			if message.Method == "echo" {
				if _, err := fmt.Fprintf(conn, `{"result":%s,"error":null,"id":%s}`, message.Params, message.ID); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(out, "server %s\n", message.Result)
		}
	})
}

// The messages of the vhost-user protocol that a block device's driver begins with, and what they have.
const (
	getFeatures         = 1
	setOwner            = 3
	getProtocolFeatures = 15
	setProtocolFeatures = 16
	getConfig           = 24

	protocolFeaturesBit = 30
	configBit           = 9

	versionOne = 1
	replyFlag  = 1 << 2
	sectorSize = 512
)

// WatchBlockDevice prints the capacity of the disk for each connection to a vhost-user-blk server.
func WatchBlockDevice(ctx context.Context, path string, out io.Writer) error {
	return keepConnected(ctx, path, out, func(conn net.Conn) error {
		if _, err := sendRequest(conn, setOwner, nil, false); err != nil {
			return err
		}
		features, err := requestNumber(conn, getFeatures)
		if err != nil || features&(1<<protocolFeaturesBit) == 0 {
			return fmt.Errorf("features %#x: %w", features, err)
		}
		protocol, err := requestNumber(conn, getProtocolFeatures)
		if err != nil || protocol&(1<<configBit) == 0 {
			return fmt.Errorf("protocol features %#x: %w", protocol, err)
		}
		if _, err := sendRequest(conn, setProtocolFeatures, binary.NativeEndian.AppendUint64(nil, 1<<configBit), false); err != nil {
			return err
		}
		// The driver reads 8 bytes from the offset 0, and the answer has them after offset, size and flags.
		request := make([]byte, 12+8)
		binary.NativeEndian.PutUint32(request[4:], 8)
		config, err := sendRequest(conn, getConfig, request, true)
		if err != nil {
			return err
		}
		if len(config) != len(request) {
			return fmt.Errorf("the configuration has %d bytes", len(config))
		}
		fmt.Fprintln(out, "capacity", binary.LittleEndian.Uint64(config[12:])*sectorSize)
		_, err = io.Copy(io.Discard, conn)
		return errors.Join(err, io.EOF)
	})
}

func requestNumber(conn net.Conn, request uint32) (uint64, error) {
	reply, err := sendRequest(conn, request, nil, true)
	if err != nil || len(reply) != 8 {
		return 0, fmt.Errorf("request %d: %d bytes: %w", request, len(reply), err)
	}
	return binary.NativeEndian.Uint64(reply), nil
}

// sendRequest sends a message and returns the payload of the reply, where there is one.
func sendRequest(conn net.Conn, request uint32, payload []byte, replies bool) ([]byte, error) {
	header := []uint32{request, versionOne, uint32(len(payload))}
	var message bytes.Buffer
	_ = binary.Write(&message, binary.NativeEndian, header) // to memory
	message.Write(payload)
	if _, err := conn.Write(message.Bytes()); err != nil || !replies {
		return nil, err
	}
	if err := binary.Read(conn, binary.NativeEndian, header); err != nil {
		return nil, err
	}
	if header[0] != request || header[1]&replyFlag == 0 || header[2] > 1024 {
		return nil, fmt.Errorf("request %d: the reply begins with %v", request, header)
	}
	reply := make([]byte, header[2])
	_, err := io.ReadFull(conn, reply)
	return reply, err
}

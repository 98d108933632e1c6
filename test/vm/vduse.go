// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests, messages and sizes of linux/vduse.h.
const (
	vduseCreateDev  = 0x41508102
	vduseDestroyDev = 0x41008103
	vduseVQSetup    = 0x40208114

	vduseMessageSize = 152
	vduseQueues      = 2

	virtioNet                   = 1
	virtioVersion1              = 1 << 32
	virtioAccessPlatform        = 1 << 33
	vduseControl                = "/dev/vduse/control"
	vduseDevices                = "/dev/vduse/"
	vduseConfigSize             = 64
	vduseQueueSize       uint16 = 256
)

// serveVDUSE creates a vDPA device in user space, a network card with two queues, and answers the kernel's messages. It
// moves no packets.
func serveVDUSE(name string) error {
	control, err := os.OpenFile(vduseControl, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	config := struct {
		name               [256]byte
		vendor, device     uint32
		features           uint64
		queues, queueAlign uint32
		reserved           [13]uint32
		size               uint32
		content            [vduseConfigSize]byte
	}{device: virtioNet, features: virtioVersion1 | virtioAccessPlatform, queues: vduseQueues, queueAlign: 4096, size: vduseConfigSize}
	copy(config.name[:], name)
	if err := ioctl(control, vduseCreateDev, unsafe.Pointer(&config)); err != nil {
		return fmt.Errorf("create VDUSE device %q: %w", name, err)
	}
	device, err := os.OpenFile(vduseDevices+name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for i := range uint32(vduseQueues) {
		queue := struct {
			index    uint32
			maxSize  uint16
			reserved [13]uint16
		}{index: i, maxSize: vduseQueueSize}
		if err := ioctl(device, vduseVQSetup, unsafe.Pointer(&queue)); err != nil {
			return fmt.Errorf("set up queue %d: %w", i, err)
		}
	}
	fmt.Println("serving")
	for {
		request, answer := make([]byte, vduseMessageSize), make([]byte, vduseMessageSize)
		// ioctl has made the file blocking.
		if _, err := unix.Read(int(device.Fd()), request); err != nil {
			return fmt.Errorf("read message: %w", err)
		}
		// The answer has the ID of the request, the result 0, and no state of queues.
		binary.NativeEndian.PutUint32(answer, binary.NativeEndian.Uint32(request[4:]))
		if _, err := unix.Write(int(device.Fd()), answer); err != nil {
			return fmt.Errorf("answer message: %w", err)
		}
	}
}

// destroyVDUSE removes a device that no process serves.
func destroyVDUSE(name string) error {
	control, err := os.OpenFile(vduseControl, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	var text [256]byte
	copy(text[:], name)
	return ioctl(control, vduseDestroyDev, unsafe.Pointer(&text))
}

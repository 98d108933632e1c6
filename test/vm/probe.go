// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/containerd/errdefs"
)

// Requests of linux/vfio.h, linux/iommufd.h and linux/vhost.h.
const (
	vfioGetAPIVersion       = 0x3b64
	vfioSetIOMMU            = 0x3b66
	vfioGroupGetStatus      = 0x3b67
	vfioGroupSetContainer   = 0x3b68
	vfioGroupGetDeviceFD    = 0x3b6a
	vfioDeviceGetRegionInfo = 0x3b6c
	vfioIOMMUMapDMA         = 0x3b71
	vfioDeviceBindIOMMUFD   = 0x3b76
	vfioDeviceAttachPT      = 0x3b77
	iommuIOASAlloc          = 0x3b81
	iommuIOASMap            = 0x3b85
	vhostVDPAGetDeviceID    = 0x8004af70

	vfioType1v2IOMMU = 3
	configRegion     = 7
	dmaSize          = 2 << 20
)

// probe uses a device in a container as an application would, and prints the result:
//
//	group NODE ADDRESS   opens the function through its IOMMU group, reads its IDs and maps memory for DMA
//	hold NODE ADDRESS    is group, and keeps the function open
//	cdev NODE            binds the function to iommufd, reads its IDs and maps memory for DMA
//	vdpa NODE            reads the virtio device ID of a vDPA device
//	vduse NAME           serves a vDPA device, on the host
//	connect PATH         connects to a socket
//	lock                 locks 16 MiB of memory
func probe(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "group":
		return probeGroup(args[1], args[2])
	case len(args) == 3 && args[0] == "hold":
		err := probeGroup(args[1], args[2])
		if err == nil {
			select {}
		}
		return err
	case len(args) == 2 && args[0] == "cdev":
		return probeCdev(args[1])
	case len(args) == 2 && args[0] == "connect":
		conn, err := net.Dial("unix", args[1])
		if err != nil {
			return err
		}
		fmt.Println("connected")
		return conn.Close()
	case len(args) == 1 && args[0] == "lock":
		memory, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err == nil {
			err = unix.Mlock(memory)
		}
		if err != nil {
			return fmt.Errorf("lock memory: %w", err)
		}
		fmt.Println("locked")
		return nil
	case len(args) == 2 && args[0] == "vduse":
		return serveVDUSE(args[1])
	case len(args) == 2 && args[0] == "vdpa":
		f, err := os.OpenFile(args[1], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		var id uint32
		err = ioctl(f, vhostVDPAGetDeviceID, unsafe.Pointer(&id))
		fmt.Println("virtio device", id)
		return err
	}
	return fmt.Errorf("invalid arguments %q: %w", args, errdefs.ErrInvalidArgument)
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, err := ioctlValue(f, request, uintptr(arg))
	return err
}

func ioctlValue(f *os.File, request, arg uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, arg)
	if errno != 0 {
		return 0, fmt.Errorf("%s: request %#x: %w", f.Name(), request, errno)
	}
	return int(r), nil
}

func probeGroup(node, address string) error {
	container, err := os.OpenFile("/dev/vfio/vfio", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	group, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	version, err := ioctlValue(container, vfioGetAPIVersion, 0)
	if err != nil {
		return err
	}
	status := struct{ argsz, flags uint32 }{argsz: 8}
	if err := ioctl(group, vfioGroupGetStatus, unsafe.Pointer(&status)); err != nil {
		return err
	}
	fmt.Printf("API version %d, group status %#x\n", version, status.flags)
	fd := int32(container.Fd())
	if err := ioctl(group, vfioGroupSetContainer, unsafe.Pointer(&fd)); err != nil {
		return fmt.Errorf("set container: %w", err)
	}
	if _, err := ioctlValue(container, vfioSetIOMMU, vfioType1v2IOMMU); err != nil {
		return fmt.Errorf("set IOMMU: %w", err)
	}
	name, err := unix.BytePtrFromString(address)
	if err != nil {
		return err
	}
	device, _, errno := unix.Syscall(unix.SYS_IOCTL, group.Fd(), vfioGroupGetDeviceFD, uintptr(unsafe.Pointer(name)))
	if errno != 0 {
		return fmt.Errorf("open %s: %w", address, errno)
	}
	if err := readIDs(os.NewFile(device, address)); err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, dmaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	dma := struct {
		argsz, flags       uint32
		vaddr, iova, bytes uint64
	}{argsz: 32, flags: 3, vaddr: uint64(uintptr(unsafe.Pointer(&memory[0]))), iova: 1 << 20, bytes: dmaSize}
	if err := ioctl(container, vfioIOMMUMapDMA, unsafe.Pointer(&dma)); err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	fmt.Println("mapped")
	return nil
}

// readIDs prints the vendor and the device of a function's configuration space.
func readIDs(device *os.File) error {
	region := struct {
		argsz, flags, index, capOffset uint32
		size, offset                   uint64
	}{argsz: 32, index: configRegion}
	if err := ioctl(device, vfioDeviceGetRegionInfo, unsafe.Pointer(&region)); err != nil {
		return err
	}
	ids := make([]byte, 4)
	if _, err := unix.Pread(int(device.Fd()), ids, int64(region.offset)); err != nil {
		return fmt.Errorf("read the configuration space: %w", err)
	}
	fmt.Printf("configuration space %x\n", ids)
	return nil
}

func probeCdev(node string) error {
	iommu, err := os.OpenFile("/dev/iommu", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	device, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	bind := struct {
		argsz, flags uint32
		iommufd      int32
		id           uint32
	}{argsz: 16, iommufd: int32(iommu.Fd())}
	ioas := struct{ size, flags, id uint32 }{size: 12}
	if err := errors.Join(ioctl(device, vfioDeviceBindIOMMUFD, unsafe.Pointer(&bind)), ioctl(iommu, iommuIOASAlloc, unsafe.Pointer(&ioas))); err != nil {
		return err
	}
	attach := struct{ argsz, flags, id uint32 }{argsz: 12, id: ioas.id}
	if err := ioctl(device, vfioDeviceAttachPT, unsafe.Pointer(&attach)); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := readIDs(device); err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, dmaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	// The address is fixed, readable and writable.
	dma := struct {
		size, flags, ioas, reserved uint32
		address, length, iova       uint64
	}{size: 40, flags: 7, ioas: ioas.id, address: uint64(uintptr(unsafe.Pointer(&memory[0]))), length: dmaSize, iova: 1 << 20}
	if err := ioctl(iommu, iommuIOASMap, unsafe.Pointer(&dma)); err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	fmt.Println("mapped")
	return nil
}

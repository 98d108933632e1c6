// SPDX-License-Identifier: Apache-2.0

// Package vm runs tests in a machine that QEMU emulates, with the kernel's own drivers: virtual functions (VFs) of
// igb, VFIO with IOMMU groups and iommufd, vDPA, RDMA, cgroup v2 and AppArmor. Its test process starts the machine and
// runs itself again inside it, where the tests use the harness of package e2e as in its jail.
//
// Debian's packages are unpacked into the cache folder. The modules that Debian's kernel lacks are built from its
// source. The root file system is an image of ext4, to which the machine's changes are not written. The machine uses KVM
// if /dev/kvm works. JACKFIELD_VM_ACCEL=tcg makes it emulate the processor, as without KVM.
package vm

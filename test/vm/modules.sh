#!/bin/sh
# Builds the modules that Debian's kernel lacks, out of tree, and moves them into the directory OUT.
# Usage: modules.sh OUT SOURCE HEADERS COMMON KBUILD: the tar archive of the kernel's source, and the directories of
# the packages linux-headers-VERSION, linux-headers-VERSION-common and linux-kbuild-VERSION.
set -eu
out=$1 source=$2 headers=$3 common=$4 kbuild=$5
work=$(mktemp -d "$out/XXXXXX")
trap 'rm -rf "$work"' EXIT

# The headers refer to one another by paths of an installed system.
mkdir -p "$work/kernel/src/common" "$work/kernel/lib" "$work/src"
ln -s "$kbuild" "$work/kernel/lib/$(basename "$kbuild")"
ln -s "$common"/* "$work/kernel/src/common/"
ln -sfn "$kbuild/scripts" "$work/kernel/src/common/scripts"
ln -sfn "$kbuild/tools" "$work/kernel/src/common/tools"
cp -a "$headers" "$work/kernel/src/headers"
ln -sfn "$kbuild/scripts" "$work/kernel/src/headers/scripts"
ln -sfn "$kbuild/tools" "$work/kernel/src/headers/tools"
echo "include $work/kernel/src/common/Makefile" >"$work/kernel/src/headers/Makefile"
# With vmlinux, the build needs pahole.
rm -f "$work/kernel/src/headers/vmlinux"

cd "$work/src"
tar --strip-components=1 --wildcards -xf "$source" '*/drivers/iommu/iommufd' '*/drivers/iommu/iommu-priv.h' \
	'*/drivers/vfio' '*/drivers/vdpa' '*/drivers/vhost' '*/drivers/infiniband/sw/rxe' '*/lib/interval_tree.c'

# build FOLDER FLAGS VARIABLES: FLAGS define the options for the code, VARIABLES set them in the makefile.
build() {
	make -s -j"$(nproc)" -C "$work/kernel/src/headers" M="$PWD/$1" KCFLAGS="$2" \
		KBUILD_EXTRA_SYMBOLS="$(find "$PWD" -name Module.symvers -printf '%p ')" $3 modules
}

# The kernel has interval_tree.c without its iterator of spans.
sed '/^INTERVAL_TREE_DEFINE/,/)$/d; /^EXPORT_SYMBOL_GPL(interval_tree_[ir]/d' lib/interval_tree.c >drivers/iommu/iommufd/spans.c
sed -i 's/^iommufd-y := /&spans.o /' drivers/iommu/iommufd/Makefile
build drivers/iommu/iommufd '-DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1' CONFIG_IOMMUFD=m

build drivers/vfio '-DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_VFIO_DEVICE_CDEV=1 -DCONFIG_VFIO_NOIOMMU=1' \
	'CONFIG_IOMMUFD=m CONFIG_VFIO_DEVICE_CDEV=y CONFIG_VFIO_MDEV= CONFIG_MLX5_VFIO_PCI= CONFIG_PDS_VFIO_PCI= CONFIG_VIRTIO_VFIO_PCI= CONFIG_QAT_VFIO_PCI='

build drivers/vhost '-DCONFIG_VHOST_RING_MODULE=1 -DCONFIG_VHOST_IOTLB_MODULE=1' \
	'CONFIG_VHOST_RING=m CONFIG_VHOST_IOTLB= CONFIG_VHOST= CONFIG_VHOST_NET= CONFIG_VHOST_SCSI= CONFIG_VHOST_VSOCK= CONFIG_VHOST_VDPA='
build drivers/vdpa/vdpa_sim '-DCONFIG_VHOST_RING_MODULE=1 -DCONFIG_VHOST_IOTLB_MODULE=1' \
	'CONFIG_VDPA_SIM=m CONFIG_VDPA_SIM_NET=m'
build drivers/vdpa/virtio_pci '' CONFIG_VP_VDPA=m

# An RDMA device of hardware is below its function in sysfs.
sed -i 's/^\terr = ib_device_set_netdev(/\tdev->dev.parent = ndev->dev.parent;\n&/' drivers/infiniband/sw/rxe/rxe_verbs.c
build drivers/infiniband/sw/rxe '' CONFIG_RDMA_RXE=m

find drivers -name '*.ko' -exec mv {} "$out" \;

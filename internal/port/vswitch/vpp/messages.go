// SPDX-License-Identifier: Apache-2.0

package vpp

// This file defines the messages that the driver uses, from VPP's .api files: memclnt.api, vpe.api,
// interface.api, l2.api, memif.api, vhost_user.api and policer.api. A struct holds the fields after
// the header, in the order of the definition. Each name ends in the checksum of the definition. VPP
// 23.06 to 26.06 have all of these messages.

// The numbers of the first two messages are fixed.
const (
	idSockclntCreate      = 15
	idSockclntCreateReply = 16
)

// exchange is a request and its reply, by their names with checksums.
type exchange struct{ request, answer string }

var (
	controlPing            = exchange{"control_ping_51077d14", "control_ping_reply_f6b0b8ca"}
	wantInterfaceEvents    = exchange{"want_interface_events_476f5a08", "want_interface_events_reply_e8d4e804"}
	swInterfaceDump        = exchange{"sw_interface_dump_aa610c27", "sw_interface_details_6c221fc7"}
	swInterfaceSetFlags    = exchange{"sw_interface_set_flags_f5aec1b8", "sw_interface_set_flags_reply_e8d4e804"}
	swInterfaceSetMTU      = exchange{"sw_interface_set_mtu_5cbe85e5", "sw_interface_set_mtu_reply_e8d4e804"}
	swInterfaceTagAddDel   = exchange{"sw_interface_tag_add_del_426f8bc1", "sw_interface_tag_add_del_reply_e8d4e804"}
	swInterfaceSetL2Bridge = exchange{"sw_interface_set_l2_bridge_d0678b13",
		"sw_interface_set_l2_bridge_reply_e8d4e804"}
	bridgeDomainDump         = exchange{"bridge_domain_dump_74396a43", "bridge_domain_details_0fa506fd"}
	createVhostUserIf        = exchange{"create_vhost_user_if_v2_dba1cc1d", "create_vhost_user_if_v2_reply_5383d31f"}
	deleteVhostUserIf        = exchange{"delete_vhost_user_if_f9e6675e", "delete_vhost_user_if_reply_e8d4e804"}
	swInterfaceVhostUserDump = exchange{"sw_interface_vhost_user_dump_f9e6675e",
		"sw_interface_vhost_user_details_0cee1e53"}
	memifSocketFilenameAddDel = exchange{"memif_socket_filename_add_del_v2_34223bdf",
		"memif_socket_filename_add_del_v2_reply_9f29bdb9"}
	memifSocketFilenameDump = exchange{"memif_socket_filename_dump_51077d14",
		"memif_socket_filename_details_7ff326f7"}
	memifCreate               = exchange{"memif_create_v2_8c7de5f7", "memif_create_v2_reply_5383d31f"}
	memifDelete               = exchange{"memif_delete_f9e6675e", "memif_delete_reply_e8d4e804"}
	memifDump                 = exchange{"memif_dump_51077d14", "memif_details_da34feb9"}
	bridgeDomainAddDel        = exchange{"bridge_domain_add_del_v2_600b7170", "bridge_domain_add_del_v2_reply_fcb1e980"}
	createVLANSubif           = exchange{"create_vlan_subif_af34ac8b", "create_vlan_subif_reply_5383d31f"}
	deleteSubif               = exchange{"delete_subif_f9e6675e", "delete_subif_reply_e8d4e804"}
	l2InterfaceVLANTagRewrite = exchange{"l2_interface_vlan_tag_rewrite_62cc0bbc",
		"l2_interface_vlan_tag_rewrite_reply_e8d4e804"}
	policerAddDel = exchange{"policer_add_del_2b31dd38", "policer_add_del_reply_a177cef2"}
	policerInput  = exchange{"policer_input_233f0ef5", "policer_input_reply_e8d4e804"}
	policerDump   = exchange{"policer_dump_35f1ae0f", "policer_details_72d0e248"}
	showVersion   = exchange{"show_version_51077d14", "show_version_reply_c919bde1"}
)

const (
	swInterfaceEvent = "sw_interface_event_2d3d95a7"

	anyIndex uint32 = 0xffffffff
	// adminUp is IF_STATUS_API_FLAG_ADMIN_UP.
	adminUp uint32 = 1
	// memifMaster listens on the socket, memifSlave connects to it.
	memifMaster, memifSlave uint32 = 0, 1
	// subInterfaceType is IF_API_TYPE_SUB.
	subInterfaceType uint32 = 1
	// popOneTag is the rewrite L2_VTR_POP_1.
	popOneTag uint32 = 3
	// policerTransmit is SSE2_QOS_ACTION_API_TRANSMIT. Zero drops.
	policerTransmit uint8 = 1
)

type messageTableEntry struct {
	ID   uint16
	Name [64]byte
}

// retvalReply is the reply of a message that only changes something.
type retvalReply struct{ Retval int32 }

// indexReply is the reply of a message that creates an interface, or the ID of a memif socket.
type indexReply struct {
	Retval int32
	Index  uint32
}

type showVersionReply struct {
	Retval                      int32
	Program, Version, BuildDate [32]byte
	BuildDirectory              [256]byte
}

type wantInterfaceEventsMessage struct{ Enable, PID uint32 }

// swInterfaceEventMessage holds the fields after the client's index. This message has the index
// instead of a context.
type swInterfaceEventMessage struct {
	PID, SwIfIndex, Flags uint32
	Deleted               bool
}

// swInterfaceDumpMessage requests all interfaces. An empty string of variable length follows.
type swInterfaceDumpMessage struct {
	SwIfIndex        uint32
	NameFilterValid  bool
	NameFilterLength uint32
}

type swInterfaceDetailsMessage struct {
	SwIfIndex, SupSwIfIndex    uint32
	L2Address                  [6]byte
	Flags, Type, LinkDuplex    uint32
	LinkSpeed                  uint32
	LinkMTU                    uint16
	MTU                        [4]uint32
	SubID                      uint32
	SubNumberOfTags            uint8
	SubOuterVLAN, SubInnerVLAN uint16
	SubIfFlags, VTROp          uint32
	VTRPushDot1q, VTRTag1      uint32
	VTRTag2                    uint32
	OuterTag                   uint16
	BDMAC, BSMAC               [6]byte
	BVLANID                    uint16
	ISID                       uint32
	Name, DeviceType, Tag      [64]byte
}

type swInterfaceSetFlagsMessage struct{ SwIfIndex, Flags uint32 }

type swInterfaceSetMTUMessage struct {
	SwIfIndex uint32
	// MTU is the MTU of the interface, and of IPv4, IPv6 and MPLS on it.
	MTU [4]uint32
}

type swInterfaceTagAddDelMessage struct {
	IsAdd     bool
	SwIfIndex uint32
	Tag       [64]byte
}

type swInterfaceSetL2BridgeMessage struct {
	SwIfIndex, BridgeDomain, PortType uint32
	SplitHorizonGroup                 uint8
	Enable                            bool
}

type bridgeDomainDumpMessage struct{ BridgeDomain, SwIfIndex uint32 }

type bridgeDomainAddDelMessage struct {
	BridgeDomain                                    uint32
	Flood, UnknownFlood, Forward, Learn, ARP, ARPUF bool
	MACAge                                          uint8
	Tag                                             [64]byte
	IsAdd                                           bool
}

type createVLANSubifMessage struct{ SwIfIndex, VLAN uint32 }

type l2InterfaceVLANTagRewriteMessage struct{ SwIfIndex, Operation, PushDot1q, Tag1, Tag2 uint32 }

type policerAction struct{ Type, DSCP uint8 }

// policerAddDelMessage creates or deletes a policer. Zero values mean a rate in kbit/s, rounding to
// the closest value, and one rate with two colours.
type policerAddDelMessage struct {
	IsAdd                                      bool
	Name                                       [64]byte
	CIR, EIR                                   uint32
	CB, EB                                     uint64
	RateType, RoundType, Type                  uint8
	ColorAware                                 bool
	ConformAction, ExceedAction, ViolateAction policerAction
}

type policerInputMessage struct {
	Name      [64]byte
	SwIfIndex uint32
	Apply     bool
}

type policerDumpMessage struct {
	MatchNameValid bool
	MatchName      [64]byte
}

// policerDetailsMessage holds the fields that the driver reads. The policer's state follows.
type policerDetailsMessage struct {
	Name     [64]byte
	CIR, EIR uint32
}

// bridgeDomainDetailsMessage is followed by Members elements of bridgeDomainMember.
type bridgeDomainDetailsMessage struct {
	BridgeDomain                                    uint32
	Flood, UnknownFlood, Forward, Learn, ARP, ARPUF bool
	MACAge                                          uint8
	Tag                                             [64]byte
	BVI, UnknownFloodIf, Members                    uint32
}

type bridgeDomainMember struct {
	Context, SwIfIndex uint32
	SplitHorizonGroup  uint8
}

type createVhostUserIfMessage struct {
	IsServer                                  bool
	Socket                                    [256]byte
	Renumber, NoMergeableBuffers, NoIndirect  bool
	EnableGSO, EnablePacked, EnableEventIndex bool
	CustomInstance                            uint32
	UseCustomMAC                              bool
	MAC                                       [6]byte
	Tag                                       [64]byte
}

// swIfIndexMessage is the body of messages with a single interface index.
type swIfIndexMessage struct{ SwIfIndex uint32 }

type swInterfaceVhostUserDetailsMessage struct {
	SwIfIndex  uint32
	Name       [64]byte
	HeaderSize uint32
	Features   [2]uint32
	IsServer   bool
	Socket     [256]byte
	Regions    uint32
	SockErrno  int32
}

// memifSocketFilenameMessage is followed by FilenameLength bytes.
type memifSocketFilenameMessage struct {
	IsAdd                    bool
	SocketID, FilenameLength uint32
}

type memifSocketFilenameDetailsMessage struct {
	SocketID uint32
	Filename [108]byte
}

type memifCreateMessage struct {
	Role, Mode             uint32
	RxQueues, TxQueues     uint8
	ID, SocketID, RingSize uint32
	BufferSize             uint16
	NoZeroCopy, UseDMA     bool
	MAC                    [6]byte
	Secret                 [24]byte
}

type memifDetailsMessage struct {
	SwIfIndex          uint32
	MAC                [6]byte
	ID, Role, Mode     uint32
	ZeroCopy           bool
	SocketID, RingSize uint32
	BufferSize         uint16
	Flags              uint32
	Name               [64]byte
}

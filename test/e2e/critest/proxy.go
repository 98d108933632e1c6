// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// proxy forwards the calls of critest to a runtime. It sets the parent of the pods' cgroups, because critest sets none
// and the pods' cgroups would be outside of the jail's.
type proxy struct {
	runtime      *grpc.ClientConn
	cgroupParent string
}

// serveProxy serves a proxy of the runtime's socket at another socket.
func serveProxy(socket, runtime, cgroupParent string) (stop func() error, err error) {
	conn, err := grpc.NewClient("unix://"+runtime, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		return nil, fmt.Errorf("serve proxy: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve proxy: %w", err), conn.Close())
	}
	p := proxy{runtime: conn, cgroupParent: cgroupParent}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(p.forward))
	go server.Serve(listener)
	return func() error {
		server.Stop()
		return conn.Close()
	}, nil
}

// forward forwards one request and its responses. CRI has no method with several requests.
func (p proxy) forward(_ any, from grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	method, _ := grpc.MethodFromServerStream(from)
	var request []byte
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	if method == cri.RuntimeService_RunPodSandbox_FullMethodName {
		var err error
		if request, err = p.setCgroupParent(request); err != nil {
			return err
		}
	}
	to, err := p.runtime.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(to.SendMsg(&request), to.CloseSend()); err != nil {
		return err
	}
	for {
		var response []byte
		if err := to.RecvMsg(&response); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := from.SendMsg(&response); err != nil {
			return err
		}
	}
}

func (p proxy) setCgroupParent(request []byte) ([]byte, error) {
	var r cri.RunPodSandboxRequest
	if err := proto.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	if r.GetConfig() == nil {
		return request, nil
	}
	if r.Config.Linux == nil {
		r.Config.Linux = &cri.LinuxPodSandboxConfig{}
	}
	r.Config.Linux.CgroupParent = p.cgroupParent
	return proto.Marshal(&r)
}

// rawCodec leaves messages encoded.
type rawCodec struct{}

// Name is empty because CRI-O accepts only the content type without a name of a codec.
func (rawCodec) Name() string { return "" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

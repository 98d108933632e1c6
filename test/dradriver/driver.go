// SPDX-License-Identifier: Apache-2.0

package dradriver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

const (
	pluginsDir = "/var/lib/kubelet/plugins"
	cdiDir     = "/var/run/cdi"
	pool       = "node" // also the name of the node
)

// Claim is a ResourceClaim with its allocation.
type Claim struct {
	Namespace, Name string
	UID             types.UID // "" for one that is made of the name
	PodClaim        string    // of a claim from a template: its name in the pod's spec
	Devices         []Device
}

// Device is one allocated device of a claim.
type Device struct {
	Request, Name string
	PCIAddress    string // "" for none
	VhostUserPath string // in the container; "" for none
	MTU           int64  // 0 for none
	Network       *resourceapi.NetworkDeviceData
	Edits         specs.ContainerEdits // that the driver's CDI file has for the device
}

func (c *Claim) uid() types.UID { return cmp.Or(c.UID, types.UID("uid-"+c.Namespace+"-"+c.Name)) }

// Driver is a running driver.
type Driver struct {
	name    string
	cdiDir  string
	devices map[string]Device // of a cluster's node, by name
	helper  *kubeletplugin.Helper
	api     *httptest.Server
	conn    *grpc.ClientConn

	mu     sync.Mutex
	claims map[types.UID]Claim
}

// Start starts a driver on the host whose root directory is root. The caller is its kubelet.
func Start(ctx context.Context, root, name string) (*Driver, error) {
	d := &Driver{name: name, cdiDir: filepath.Join(root, cdiDir), claims: map[types.UID]Claim{}}
	d.api = httptest.NewServer(http.HandlerFunc(d.serveClaim))
	if err := d.start(ctx, root, &rest.Config{Host: d.api.URL}); err != nil {
		d.api.Close()
		return nil, err
	}
	var err error
	d.conn, err = grpc.NewClient("unix://"+filepath.Join(root, pluginsDir, name, "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.helper.Stop()
		d.api.Close()
		return nil, err
	}
	return d, nil
}

// start starts the helper, as a client of an API server.
func (d *Driver) start(ctx context.Context, root string, config *rest.Config) error {
	data, registry := filepath.Join(root, pluginsDir, d.name), filepath.Join(root, "/var/lib/kubelet/plugins_registry")
	for _, dir := range []string{data, registry, d.cdiDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	d.helper, err = kubeletplugin.Start(klog.NewContext(ctx, logr.Discard()), d, kubeletplugin.DriverName(d.name), kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(pool), kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.CDIDirectory(d.cdiDir),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion}))
	if err != nil {
		return fmt.Errorf("start DRA driver %q: %w", d.name, err)
	}
	return nil
}

// serveClaim is the part of the API server that the helper asks: it returns a prepared claim.
func (d *Driver) serveClaim(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims {
		if r.Method == http.MethodGet && r.URL.Path == "/apis/resource.k8s.io/v1/namespaces/"+c.Namespace+"/resourceclaims/"+c.Name {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(d.object(&c))
			return
		}
	}
	http.NotFound(w, r)
}

// object returns a claim as the API server has it.
func (d *Driver) object(c *Claim) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.uid()}}
	if c.PodClaim != "" {
		claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: c.PodClaim}
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, dev := range c.Devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: dev.Request, Driver: d.name, Pool: pool, Device: dev.Name})
	}
	return claim
}

// Stop ends the driver. Its files stay.
func (d *Driver) Stop() error {
	d.helper.Stop()
	if d.api == nil {
		return nil
	}
	d.api.Close()
	return d.conn.Close()
}

// MetadataFile returns the host path of the metadata of a request.
func (d *Driver) MetadataFile(c Claim, request string) string {
	return filepath.Join(pluginsDir, d.name, "dra-device-metadata", c.Namespace+"_"+c.Name, request, "metadata.json")
}

// Prepare has the driver prepare a claim, as the kubelet does before it creates the pod's sandbox. It
// returns the CDI devices of each request.
func (d *Driver) Prepare(ctx context.Context, c Claim) (cdiDevices map[string][]string, err error) {
	d.mu.Lock()
	d.claims[c.uid()] = c
	d.mu.Unlock()
	uid := string(c.uid())
	answer, err := dra.NewDRAPluginClient(d.conn).NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{
		Claims: []*dra.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: uid}}})
	if err != nil {
		return nil, err
	}
	prepared := answer.GetClaims()[uid]
	if prepared.GetError() != "" {
		return nil, errors.New(prepared.GetError())
	}
	cdiDevices = map[string][]string{}
	for _, dev := range prepared.GetDevices() {
		for _, request := range dev.GetRequestNames() {
			cdiDevices[request] = append(cdiDevices[request], dev.GetCdiDeviceIds()...)
		}
	}
	return cdiDevices, nil
}

// Update has the driver write the metadata of a request again, with what is known of its devices now.
func (d *Driver) Update(ctx context.Context, c Claim, request string) error {
	var devices []kubeletplugin.Device
	for i := range c.Devices {
		if c.Devices[i].Request == request {
			devices = append(devices, d.device(&c, &c.Devices[i]))
		}
	}
	return d.helper.UpdateRequestMetadata(ctx, c.Namespace, c.Name, c.uid(), request, devices)
}

// Unprepare has the driver forget a claim, as the kubelet does after its pod has ended.
func (d *Driver) Unprepare(ctx context.Context, c Claim) error {
	_, err := dra.NewDRAPluginClient(d.conn).NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{
		Claims: []*dra.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.uid())}}})
	return err
}

// Inject injects CDI devices into a spec, as a runtime does for a container.
func (d *Driver) Inject(spec *rspec.Spec, cdiDevices []string) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(d.cdiDir), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	_, err = cache.InjectDevices(spec, cdiDevices...)
	return err
}

// device returns what the driver says about a device.
func (d *Driver) device(c *Claim, dev *Device) kubeletplugin.Device {
	out := kubeletplugin.Device{Requests: []string{dev.Request}, PoolName: pool, DeviceName: dev.Name}
	if dev.Edits.Mounts != nil || dev.Edits.DeviceNodes != nil || dev.Edits.Env != nil {
		out.CDIDeviceIDs = []string{d.name + "/device=" + cdiName(c, dev)}
	}
	attributes := map[string]resourceapi.DeviceAttribute{}
	if dev.PCIAddress != "" {
		attributes["resource.kubernetes.io/pciBusID"] = resourceapi.DeviceAttribute{StringValue: &dev.PCIAddress}
	}
	if dev.VhostUserPath != "" {
		attributes["vhost-user-path"] = resourceapi.DeviceAttribute{StringValue: &dev.VhostUserPath}
	}
	if dev.MTU != 0 {
		attributes["mtu"] = resourceapi.DeviceAttribute{IntValue: &dev.MTU}
	}
	if len(attributes) > 0 || dev.Network != nil {
		out.Metadata = &kubeletplugin.DeviceMetadata{Attributes: attributes, NetworkData: dev.Network}
	}
	return out
}

func cdiName(c *Claim, dev *Device) string { return string(c.uid()) + "_" + dev.Name }

// PrepareResourceClaims implements kubeletplugin.DRAPlugin: it writes the CDI file of a claim's devices.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	result := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		c := d.allocated(claim)
		var devices []kubeletplugin.Device
		file := specs.Spec{Version: specs.CurrentVersion, Kind: d.name + "/device"}
		for i := range c.Devices {
			dev := d.device(&c, &c.Devices[i])
			devices = append(devices, dev)
			if len(dev.CDIDeviceIDs) > 0 {
				file.Devices = append(file.Devices, specs.Device{Name: cdiName(&c, &c.Devices[i]), ContainerEdits: c.Devices[i].Edits})
			}
		}
		if len(file.Devices) > 0 {
			data, err := json.Marshal(file)
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(d.cdiDir, string(claim.UID)+".json"), data, 0o644); err != nil {
				return nil, err
			}
		}
		result[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return result, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	result := map[types.UID]error{}
	for _, c := range claims {
		d.mu.Lock()
		delete(d.claims, c.UID)
		d.mu.Unlock()
		err := os.Remove(filepath.Join(d.cdiDir, string(c.UID)+".json"))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		result[c.UID] = err
	}
	return result, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (d *Driver) HandleError(context.Context, error, string) {}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (d *Driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// All returns the CDI devices of these requests.
func All(cdiDevices map[string][]string, requests ...string) (all []string) {
	for _, request := range requests {
		for _, id := range cdiDevices[request] {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

package s3xml

import (
	"maps"
	"slices"
)

// ErrorFields are the elements of an error.
type ErrorFields struct {
	Code, Message, Resource string
	RequestID, HostID       string
	Extra                   []Field // further elements, in order
}

// Field is a further element of an error.
type Field struct {
	Name, Value string
}

// Error writes an error document. It has no namespace.
func (w *Writer) Error(e *ErrorFields) {
	w.Bare("Error")
	w.Text("Code", e.Code)
	w.Text("Message", e.Message)
	for _, f := range e.Extra {
		w.Text(f.Name, f.Value)
	}
	w.Optional("Resource", e.Resource)
	w.Text("RequestId", e.RequestID)
	w.Text("HostId", e.HostID)
	w.Close("Error")
}

// DeleteResult begins the answer of DeleteObjects. Deleted and DeleteError
// follow, EndDeleteResult ends it.
func (w *Writer) DeleteResult() { w.Root("DeleteResult") }

// Deleted reports one deletion. An empty version id is left out.
func (w *Writer) Deleted(key, versionID string, marker bool, markerID string) {
	w.Open("Deleted")
	w.Text("Key", key)
	w.Optional("VersionId", versionID)
	if marker {
		w.Bool("DeleteMarker", true)
		w.Optional("DeleteMarkerVersionId", markerID)
	}
	w.Close("Deleted")
}

// DeleteError reports one deletion that failed.
func (w *Writer) DeleteError(key, versionID, code, message string) {
	w.Open("Error")
	w.Text("Key", key)
	w.Optional("VersionId", versionID)
	w.Text("Code", code)
	w.Text("Message", message)
	w.Close("Error")
}

// EndDeleteResult ends the answer of DeleteObjects.
func (w *Writer) EndDeleteResult() { w.Close("DeleteResult") }

// Location writes the answer of GetBucketLocation. The first region has an
// empty name there, as on AWS.
func (w *Writer) Location(region string) {
	if region == "us-east-1" {
		region = ""
	}
	w.Root("LocationConstraint")
	w.buf = AppendText(w.buf, region)
	w.Close("LocationConstraint")
}

// Empty writes a document that is nothing but its root.
func (w *Writer) Empty(name string) {
	w.Root(name)
	w.Close(name)
}

// Single writes a document with one element in its root.
func (w *Writer) Single(name, element, text string) {
	w.Root(name)
	w.Text(element, text)
	w.Close(name)
}

// OwnerACL writes an access control list with the one grant that there is:
// everything to the owner.
func (w *Writer) OwnerACL(owner Owner) {
	w.Root("AccessControlPolicy")
	w.owner("Owner", owner)
	w.Open("AccessControlList")
	w.Open("Grant")
	w.buf = append(w.buf, `<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">`...)
	w.Text("ID", owner.ID)
	w.Text("DisplayName", owner.Name)
	w.Close("Grantee")
	w.Text("Permission", "FULL_CONTROL")
	w.Close("Grant")
	w.Close("AccessControlList")
	w.Close("AccessControlPolicy")
}

// Tagging writes a set of tags in the order of their keys.
func (w *Writer) Tagging(tags map[string]string) {
	w.Root("Tagging")
	w.Open("TagSet")
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		w.Open("Tag")
		w.Text("Key", key)
		w.Text("Value", tags[key])
		w.Close("Tag")
	}
	w.Close("TagSet")
	w.Close("Tagging")
}

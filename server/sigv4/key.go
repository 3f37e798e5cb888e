package sigv4

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	terminal  = "aws4_request"

	signatureBytes = 2 * sha256.Size // of hex digits
)

// signingKey is a derived key: it signs for one access key on one day.
type signingKey [sha256.Size]byte

// deriveKey derives the signing key of a secret.
func deriveKey(secret, date, region, service string) signingKey {
	k := mac([]byte("AWS4"+secret), []byte(date))
	k = mac(k[:], []byte(region))
	k = mac(k[:], []byte(service))
	return mac(k[:], []byte(terminal))
}

// mac is HMAC-SHA-256. It is written out because crypto/hmac allocates its
// state anew for every key, which would be most of what a request allocates;
// a test compares the two.
func mac(key, message []byte) (sum [sha256.Size]byte) {
	var stack [512]byte
	var pad [sha256.BlockSize]byte
	if len(key) > len(pad) {
		short := sha256.Sum256(key)
		key = short[:]
	}
	copy(pad[:], key)
	for i := range pad {
		pad[i] ^= 0x36
	}
	inner := sha256.Sum256(append(append(stack[:0], pad[:]...), message...))
	for i := range pad {
		pad[i] ^= 0x36 ^ 0x5c
	}
	return sha256.Sum256(append(append(stack[:0], pad[:]...), inner[:]...))
}

// sign gives the signature of a string to sign, in lower-case hex.
func (k *signingKey) sign(message []byte) (signature [signatureBytes]byte) {
	sum := mac(k[:], message)
	hex.Encode(signature[:], sum[:])
	return signature
}

// keyCache remembers derived keys: deriving one costs as much as checking a
// signature. It forgets the older half when it is full. Region and service are
// those of the Authenticator.
type keyCache struct {
	half int // entries per generation

	mu         sync.RWMutex // protects the fields below
	young, old map[keyName]cachedKey
}

type keyName struct{ accessKey, date string }

type cachedKey struct {
	secret string // that the key was derived from
	key    signingKey
}

func newKeyCache(limit int) *keyCache {
	return &keyCache{half: max(limit/2, 1), young: map[keyName]cachedKey{}}
}

// get gives the key of a secret, deriving it at most once in a while.
func (c *keyCache) get(name keyName, secret, region, service string) signingKey {
	c.mu.RLock()
	k, ok := c.young[name]
	young := ok
	if !ok {
		k, ok = c.old[name]
	}
	c.mu.RUnlock()
	if !ok || k.secret != secret {
		// Another secret under the same name: the old one was replaced.
		k = cachedKey{secret: secret, key: deriveKey(secret, name.date, region, service)}
	} else if young {
		return k.key
	}
	// The names are pieces of a header: a copy doesn't keep all of it alive.
	name = keyName{accessKey: strings.Clone(name.accessKey), date: strings.Clone(name.date)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.young[name]; !there && len(c.young) >= c.half {
		c.old, c.young = c.young, make(map[keyName]cachedKey, c.half)
	}
	c.young[name] = k
	return k.key
}

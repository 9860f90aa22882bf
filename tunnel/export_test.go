package tunnel

// What the tests of the package see of its inside.

type Carrier = carrier

var Secure = secure

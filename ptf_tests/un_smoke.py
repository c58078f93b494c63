from ptf_tests.fabric_test import SwitchTest
from tests.dataplane.entries import basic
from tests.dataplane.frames import frame, forwarded

class Smoke(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic({"fcbb:bbbb:2::/48": 1}))
        sent = frame(500, dst="fcbb:bbbb:1:2::")
        self.switch.send(sent)
        self.switch.expect(1, forwarded(sent, 1, dst="fcbb:bbbb:2::"))
        self.switch.done()

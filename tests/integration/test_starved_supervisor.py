"""A kernel that prints while its supervisor gets no CPU: on a crowded machine that is tens of milliseconds, here it is the whole cell."""

from __future__ import annotations

import os
import signal

from tests.integration.machine import until


def test_a_flood_while_the_supervisor_gets_no_cpu_arrives_whole(gateway, tmp_path):
    begin, done = tmp_path / "begin", tmp_path / "done"
    with gateway.kernel() as kernel:
        page = kernel.open()
        waits = f"import os, time\nprint('on', flush=True)\nwhile not os.path.exists({str(begin)!r}): time.sleep(0.01)\n"
        cell = page.begin(waits + f"for i in range(4000): print(i, flush=True)\nopen({str(done)!r}, 'w').close()")
        page.wait(lambda m: m["content"].get("text", "").startswith("on"))
        pid = next(found["pid"] for found in gateway.machine.supervisors() if found["kernel_id"] == kernel.id)
        os.kill(pid, signal.SIGSTOP)
        try:
            begin.touch()
            until(done.exists)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert page.finish(cell).out.split() == ["on", *map(str, range(4000))]

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMPTY, print, read } from '../../../gateway/lab/frontend/src/burstlog';

test('ranks come, print, fail and end', () => {
  let log = read(EMPTY, [{ t: 'waits', text: 'for 2 GPUs' }]);
  assert.equal(log.note, 'for 2 GPUs');
  log = read(log, [{ t: 'state', running: 2, of: 3 }, { t: 'out', rank: 2, text: 'hello\n' }, { t: 'failed', rank: 1, text: 'ValueError' }]);
  assert.deepEqual([log.running, log.of, [...log.failed], log.note], [2, 3, [1], '']);
  assert.equal(log.printed.get(2), 'hello\n');
  assert.match(log.printed.get(1) ?? '', /ValueError/);
  assert.equal(log.ended, false);
  assert.equal(read(log, [{ t: 'end', outcome: 'error', message: 'Rank 1 failed' }]).ended, true);
});

test('a log that was handed out is never changed', () => {
  read(EMPTY, [{ t: 'failed', rank: 0, text: '' }]);
  assert.equal(EMPTY.failed.size + EMPTY.printed.size, 0);
});

test('a progress bar is one line, also where a piece ends within it', () => {
  assert.equal(print(print('', ' 1%\r 50'), '%\r100%\n'), '100%\n');
  assert.equal(print('', 'a\r\nb'), 'a\nb');
});

test('colours are left out', () => {
  assert.equal(print('', '\u001b[31mred\u001b[0m'), 'red');
});

test('of very much only the last whole lines are kept', () => {
  const text = print('', 'line\n'.repeat(10_000));
  assert.ok(text.length <= 20_000 && text.startsWith('line\n') && text.endsWith('line\n'));
});

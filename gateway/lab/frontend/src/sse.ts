/** Server-sent events, as far as the gateway uses them: `event` and one line of JSON as `data`. Pure. */

export interface Told {
  name: string;
  value: unknown;
}

/** Takes a stream's text in pieces of any size. */
export class Reader {
  private rest = '';

  /** The events that are whole with this piece. */
  take(piece: string): Told[] {
    const blocks = (this.rest + piece).split('\n\n');
    this.rest = blocks.pop() ?? '';
    return blocks.flatMap(block => {
      const lines = block.split('\n');
      const field = (name: string) => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const [name, data] = [field('event'), field('data')];
      return name && data ? [{ name, value: JSON.parse(data) as unknown }] : [];
    });
  }
}

// Writes the skills of a vault of full size as folders, for tests/pages/run --full.
//
//   node folders.mjs FOLDER COUNT
import { name, write } from './catalogue.mjs';
import { each } from './crowd.mjs';

const [folder, count] = process.argv.slice(2);
const numbers = Array.from({ length: Number(count) }, (_, number) => number);
await each(numbers, 16, (number) => write(folder, number, 1));
console.log(`${numbers.length} skills, the last one ${name(numbers.at(-1))}`);
